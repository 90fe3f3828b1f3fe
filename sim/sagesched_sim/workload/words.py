"""The shared vocabulary of the synthetic traffic: fields of ordinary words, and the frames that hold them.

A field is only a list of words that go together. No field belongs to a topic: a topic is a mixture of several fields
and every field is used by several topics, so that one word never tells the topic (see topics.py).
The frames are common to all topics; `{n}`, `{v}`, `{a}` take a noun, a verb and an adjective.
"""

from typing import NamedTuple


class Field(NamedTuple):
    """Words that go together."""

    nouns: tuple[str, ...]
    verbs: tuple[str, ...]
    adjectives: tuple[str, ...]


_LISTS = """
recipe soup bread cheese butter garlic oven kitchen dinner flavor salad rice
cook bake taste serve
fresh sweet spicy raw

budget invoice loan interest tax salary bank market stock price profit fund
invest pay spend borrow
cheap fiscal costly annual

garden soil seed flower tree leaf grass root harvest rain shade fence
plant grow water prune
green wild dry lush

server database network cache script query browser file cluster memory module packet
deploy install compile debug
remote virtual digital secure

novel chapter hero plot poem verse dialogue scene author legend villain diary
write narrate imagine rhyme
tragic fictional poetic romantic

doctor nurse fever vaccine muscle heart blood sleep clinic symptom bone therapy
heal treat diagnose recover
chronic healthy severe medical

airport hotel beach passport luggage train island museum guide border cruise map
travel visit pack explore
foreign scenic distant coastal

teacher lesson pupil exam classroom grade essay lecture textbook homework college tutor
teach learn study revise
academic basic advanced strict

judge contract court lawyer clause verdict crime statute witness appeal police treaty
sue argue enforce testify
legal guilty valid formal

guitar melody concert drum choir rhythm piano lyric album stage singer orchestra
sing play compose rehearse
loud acoustic classical gentle

engine brake wheel truck fuel highway tire driver garage battery bicycle traffic
drive repair park steer
fast electric rusty heavy

planet orbit star rocket telescope galaxy moon gravity comet astronaut satellite sun
launch observe orbit land
solar bright cosmic lunar

team coach goal match league stadium referee trophy sprint ball racket tournament
train compete score kick
athletic fair tough professional

house roof wall brick window kitchen floor ceiling carpenter lamp sofa paint
build renovate furnish decorate
wooden modern cozy spacious

customer brand campaign slogan audience store survey product logo retail discount website
sell advertise promote launch
popular creative loyal premium

king empire war castle army century revolution museum soldier colony treaty monument
conquer rule invade defend
ancient royal medieval famous

child mother father family birthday wedding cousin neighbor friend baby grandmother holiday
marry invite comfort celebrate
young happy kind proud

equation number angle proof matrix triangle fraction variable graph theorem integer probability
solve calculate prove measure
linear equal random finite

dog cat horse bird fish wolf whale insect nest forest river spider
hunt feed rescue breed
tame furry hungry endangered

manager office meeting resume interview career deadline colleague project client report email
hire schedule negotiate delegate
busy urgent skilled junior

acid molecule atom cell protein enzyme laboratory sample gas metal crystal reaction
dissolve heat filter mix
organic toxic pure liquid

election senate mayor vote policy citizen party minister reform debate law nation
govern elect protest campaign
public liberal federal corrupt

shirt dress fabric shoe leather jacket color pattern jewelry silk button hat
wear sew wash iron
elegant soft colorful vintage

storm cloud wind snow flood temperature ocean climate desert mountain ice drought
melt freeze rise forecast
cold humid severe global
"""
"""A block a field: nouns, verbs, adjectives."""


def _field(block: str) -> Field:
    nouns, verbs, adjectives = (tuple(line.split()) for line in block.splitlines())
    return Field(nouns, verbs, adjectives)


FIELDS: tuple[Field, ...] = tuple(_field(block) for block in _LISTS.strip().split("\n\n"))


REQUESTS: tuple[str, ...] = (
    "Can you explain how to {v} or {v} the {a} {n} with a {a} {n} and a {n}?",
    "Please help me {v} a {a} {n} and a {n} for the {a} {n}.",
    "What is the best way to {v} the {n} and {v} the {n} when the {n} is {a}?",
    "Give me some ideas about {a} {n}, {n} and {n}, and how to {v} them.",
    "I want to {v} my {a} {n} and {n} before they {v} the {a} {n}.",
    "How does a {a} {n} {v} or {v} the {a} {n} in its {n}?",
    "Tell me more about the {a} {n}, the {n} and the {a} {n} that they {v}.",
    "Why would anyone {v} the {a} {n} and the {n} like a {a} {n}?",
    "Summarize this text about the {a} {n}, the {n} and the {a} {n} we {v}.",
    "Describe a {a} {n} that can {v} the {n} and {v} the {a} {n}.",
)
"""Frames of a prompt's first sentence."""

CONTEXT: tuple[str, ...] = (
    "The {n} should be {a}, and the {a} {n} has to {v} it first.",
    "We tried to {v} the {a} {n} but the {n} and the {n} were too {a}.",
    "There is also a {a} {n} near the {n} and the {a} {n}.",
    "Some of them {v} every {n}, others only {v} the {a} {n}.",
    "Keep in mind that the {a} {n} and the {n} must not {v} each other.",
    "After that, {v} the {n} and the {n}, and compare them with the {a} {n}.",
    "My {n} told me that the {a} {n} and its {n} will {v} it.",
    "It was {a} at the time, so they had to {v} the {n} without a {a} {n}.",
    "In this case the {n} is {a}, and no {n} or {n} is needed to {v} it.",
    "Do not forget the {n}, the {a} {n} and the {a} {n}.",
)
"""Frames of the sentences that follow."""
