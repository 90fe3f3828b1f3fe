"""The one configuration schema: decode, canonical dump, digest (docs/architecture.md).

Names in files are camelCase, as in Kubernetes. Every field has a default, so an empty file is a valid one.
"""

import hashlib
import ipaddress
from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from sagesched.addresses import is_loopback, parse_address
from sagesched.engine_arguments import EngineFacts, problem_of_mode, read_arguments

PolicyName = Literal["fcfs", "sjf", "mean", "gittins", "sagesched"]
StoreName = Literal["memory", "embedded", "server"]
ModeName = Literal["gate", "priority", "engine", "shadow"]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
HeaderName = Annotated[str, Meta(max_length=128, pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
Name = Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A part of the schema: immutable, and an unknown field is an error."""


class PriorityClass(Section, frozen=True):
    """A named class of requests; chosen by the client's header, clamped to the classes listed."""

    name: Name
    """What the client's x-sagesched-class header says."""
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    """Lower goes first, whatever the cost."""
    weight: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    """Divides the cost among requests of one priority: 2 counts half."""
    objectives: Annotated[tuple[Name, ...], Meta(max_length=64)] = ()
    """InferenceObjectives whose requests have this class (docs/headers.md)."""


DEFAULT_CLASS = PriorityClass(name="default")
"""Of a request that names no listed class, where no class is called default."""


class ShadowCandidate(Section, frozen=True):
    """Another policy, ranked beside the live one on the same traffic; it decides nothing, and both are reported."""

    policy: PolicyName
    """Its order."""
    boost: Annotated[float, Meta(ge=0, le=10)] | None = None
    """Its boost; the live one's when absent."""


class Scheduling(Section, frozen=True):
    """How requests are predicted and ordered."""

    policy: PolicyName = "sagesched"
    """The order of what waits (docs/method.md section 7)."""
    bucket_tokens: Annotated[int, Meta(ge=1, le=100_000)] = 200
    """Output tokens after which a running request's index is computed anew."""
    similarity_threshold: Annotated[float, Meta(ge=-1, le=1)] = 0.8
    """Cosine from which a record counts as similar."""
    neighbours: Annotated[int, Meta(ge=1, le=1000)] = 50
    """The nearest k that stand in where few are above the threshold."""
    boost: Annotated[float, Meta(ge=0, le=10)] = 0.02
    """gamma of docs/method.md section 5 times the mean service time, so without a unit; 0 turns the tail boost off."""
    alpha: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0
    """Cost of one uncached prompt token, in the units of the cost; 0 is the paper's."""
    max_wait_seconds: Seconds = 300.0
    """The starvation bound: a request that has waited longer goes next."""
    classes: Annotated[tuple[PriorityClass, ...], Meta(max_length=16)] = ()
    """Classes that clients may name; a request that names none has priority 0 and weight 1."""
    shadow: ShadowCandidate | None = None
    """Another policy to compare with this one, on the same traffic (docs/settings-live.md)."""


class Preemption(Section, frozen=True):
    """When a scheduler inside the engine takes a running request's place away (docs/preemption.md)."""

    enabled: bool = True
    """Whether it does so at all; the engine's own preemption, when its memory runs out, is not touched."""
    hysteresis: Annotated[float, Meta(ge=0, le=100)] = 0.5
    """By what part the waiting index must be smaller, and the expected gain larger than the cost of the resume."""
    max_per_request: Annotated[int, Meta(ge=0, le=1000)] = 1
    """How often a request may be preempted by the rule."""
    watchdog_seconds: Seconds = 60.0
    """After so long without progress, or with more preemptions than completions, it is first come, first served."""


class HistoryServer(Section, frozen=True):
    """A Qdrant server that many sidecars share; its collection is made by `sagesched history init`."""

    url: Annotated[str, Meta(pattern=r"^https?://[^/@?#\s]+/?$", max_length=2048)]
    """Of its REST API, as https://qdrant.example:6333."""
    collection_prefix: Name = "sagesched"
    """How its collections' names begin; one for each embedder follows."""
    api_key_file: str | None = None
    """File that holds its API key, read anew when the server refuses it. Only over https, or to this machine."""
    ca_file: str | None = None
    """PEM certificates that the server's is believed by; the system's when absent."""
    timeout_seconds: Annotated[float, Meta(ge=0.1, le=60)] = 5.0
    """How long one call may take; nothing that serves waits for it."""
    pull_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 2.0
    """How often what the others learnt is read."""


class History(Section, frozen=True):
    """What is remembered of finished requests. Never prompt text."""

    window_rows: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """Records remembered, of all models and tenants together; the oldest goes first, but half of the window is divided
    among the tenants (docs/history.md)."""
    learn: bool = True
    """False keeps the window as it was loaded."""
    seed_file: str | None = None
    """JSONL of earlier traffic, read at start: prompt, output_tokens; also prompt_tokens, censored, model."""
    store: StoreName = "memory"
    """Where history outlives the process: nowhere, on this machine's disk, or on a Qdrant server that others share
    (docs/history.md)."""
    path: Annotated[str, Meta(min_length=1)] | None = None
    """Folder of the embedded store; only for that kind. One process at a time has it."""
    store_rows: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    """Records kept in the store, of one embedder; ten times windowRows when absent, a hundred times on a server. The
    oldest go first, of the tenants with the most."""
    server: HistoryServer | None = None
    """The Qdrant server; only for that kind."""
    tenant: Annotated[str, Meta(max_length=128, pattern=r"^[!-~]*$")] = ""
    """The tenant of what is served here, such as the namespace. Tenants that clients name are named within it."""
    share_tenants: bool = False
    """Whether the tenants that clients name here have one history together."""

    @property
    def kept_rows(self) -> int:
        """Records kept in the store."""
        times = 100 if self.store == "server" else 10
        return times * self.window_rows if self.store_rows is None else self.store_rows

    def tenant_of(self, named: str) -> str:
        """Whose history a request uses, whose client was believed to be that tenant (empty: none was named)."""
        if self.share_tenants or not named:
            return self.tenant
        return f"{self.tenant}/{named}" if self.tenant else named


class Embedding(Section, frozen=True):
    """Which embedder turns a prompt into a unit vector."""

    kind: Literal["static", "sentence-transformers"] = "static"
    """The table that comes with the package, or a sentence-transformers model (needs sagesched[embeddings])."""
    model: str | None = None
    """A sentence-transformers model name or path; only for that kind."""
    deadline_seconds: Annotated[float, Meta(gt=0, le=60)] = 0.1
    """A slow embedder that takes longer is not waited for: the request is ranked without its embedding."""


class Queue(Section, frozen=True):
    """The bounds of what may wait."""

    max_requests: Count = 10_000
    """Requests that may wait; the next is refused with 429."""
    max_bytes: Annotated[int, Meta(ge=1024, le=1 << 40)] = 1 << 30
    """Bytes of their bodies together; the next is refused with 429."""
    max_age_seconds: Seconds = 600.0
    """A request that has waited so long is refused with 503."""


class Engine(Section, frozen=True):
    """The engine behind the sidecar."""

    mode: ModeName = "gate"
    """Who holds the order: the sidecar's gate, the engine's priority queue, a scheduler inside the engine, or nobody
    (docs/modes.md)."""
    arguments: Annotated[tuple[Annotated[str, Meta(max_length=4096)], ...], Meta(max_length=512)] = ()
    """The engine's own argument list, where it is known: what it can do, its slots and its names are read there."""
    probe: bool = True
    """Whether the idle engine is tried out where the arguments do not show that it can do the mode."""
    force: bool = False
    """Use the mode though neither the arguments nor a trial have shown that the engine can do it."""
    slots: Annotated[int, Meta(ge=1, le=65_536)] | None = None
    """max_num_seqs of the engine; read from its arguments, or learnt from its metrics, when absent."""
    extra_slots: Annotated[int, Meta(ge=0, le=1024)] = 0
    """Requests sent beyond the slots, so that the engine's own queue is never empty."""
    kv_tokens: Annotated[int, Meta(ge=1)] | None = None
    """KV cache size in tokens; read from the engine's metrics when absent."""
    kv_reserve: Annotated[float, Meta(ge=0, lt=1)] = 0.03
    """The share of the KV cache that predictions may not fill."""
    metrics_interval_seconds: Seconds = 0.5
    """How often the engine's /metrics is read."""
    api_key_file: str | None = None
    """File that holds the engine's API key."""
    api_key_env: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """Environment variable that holds it."""
    ask_for_usage: bool = True
    """Ask the engine for a usage event where a streaming client does not, and take it out of the stream again."""

    @property
    def facts(self) -> EngineFacts:
        """What the engine's arguments say."""
        return read_arguments(self.arguments)

    @property
    def known_slots(self) -> int | None:
        """The engine's slots as set, or as its arguments have them."""
        return self.slots or self.facts.max_num_seqs


class Gateway(Section, frozen=True):
    """What is believed of headers that a gateway before the sidecar sets (docs/headers.md)."""

    trusted_proxies: Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=64)] = ()
    """Networks (CIDR) whose headers name tenants and rewritten models; nobody else's do."""
    tenant_header: HeaderName | None = None
    """A header that names the tenant where x-llm-d-inference-fairness-id does not."""


class Server(Section, frozen=True):
    """The sidecar's own port."""

    max_body_bytes: Annotated[int, Meta(ge=1024, le=1 << 32)] = 64 << 20
    """Largest body of a scheduled request; a larger one is refused with 413."""
    drain_seconds: Seconds = 30.0
    """Time that SIGTERM leaves to what waits and runs."""
    explain_to_all: bool = False
    """Whether /sagesched/status, queue and explain answer clients that are not on the loopback interface."""


class Grpc(Section, frozen=True):
    """The gRPC door (docs/grpc.md): admission for hosts that do not go through the proxy, and introspection."""

    listen: Annotated[tuple[Annotated[str, Meta(max_length=255)], ...], Meta(max_length=8)] = ()
    """Addresses, as unix:/run/sagesched/grpc.sock or 127.0.0.1:50051; none keeps the door shut. An
    address beyond the loopback interface needs TLS."""
    tls_cert_file: str | None = None
    """PEM certificate chain of the TCP addresses; needs tlsKeyFile."""
    tls_key_file: str | None = None
    """Its PEM private key."""
    tls_client_ca_file: str | None = None
    """PEM certificates; only clients with a certificate from one of them are served."""
    reflection: bool = False
    """Whether clients such as grpcurl may ask for the services and messages."""
    max_message_bytes: Annotated[int, Meta(ge=1024, le=64 << 20)] = 4 << 20
    """Largest message either way."""
    max_streams: Count = 20_000
    """Admit streams open at once; the next is refused with RESOURCE_EXHAUSTED."""


class Settings(Section, frozen=True):
    """Everything, validated whole: a file that does not decode leaves the last good settings in place."""

    scheduling: Scheduling = Scheduling()
    preemption: Preemption = Preemption()
    history: History = History()
    embedding: Embedding = Embedding()
    queue: Queue = Queue()
    engine: Engine = Engine()
    gateway: Gateway = Gateway()
    server: Server = Server()
    grpc: Grpc = Grpc()

    def __post_init__(self) -> None:
        for check in CHECKS:
            problem = check(self)
            if problem:
                raise ValueError(problem)


class SettingsError(ValueError):
    """Settings that cannot be used; the message names the field's path and the fix."""


def _embedding_model(settings: Settings) -> str | None:
    embedding = settings.embedding
    if embedding.kind == "sentence-transformers" and not embedding.model:
        return "embedding.model: required when embedding.kind is sentence-transformers"
    if embedding.kind == "static" and embedding.model:
        return "embedding.model: has no effect when embedding.kind is static; remove it"
    return None


def _history_path(settings: Settings) -> str | None:
    history = settings.history
    if history.store == "embedded" and history.path is None:
        return "history.path: required when history.store is embedded"
    if history.store != "embedded" and history.path is not None:
        return (
            f"history.path: has no effect when history.store is {history.store}; "
            "remove it, or set history.store to embedded"
        )
    if history.store_rows is not None and history.store_rows < history.window_rows:
        return "history.storeRows: must not be below history.windowRows, or the window could not be filled at a start"
    return None


def _history_server(settings: Settings) -> str | None:
    kind, server = settings.history.store, settings.history.server
    if server is None:
        return "history.server: required when history.store is server" if kind == "server" else None
    if kind != "server":
        return f"history.server: has no effect when history.store is {kind}; remove it, or set history.store to server"
    url = urlsplit(server.url)
    if server.api_key_file and url.scheme == "http" and not is_loopback(url.hostname or ""):
        return "history.server.url: an API key goes over https only; use https://, or remove history.server.apiKeyFile"
    if server.ca_file and url.scheme == "http":
        return "history.server.caFile: has no effect over http; remove it, or use https://"
    return None


def _one_api_key(settings: Settings) -> str | None:
    if settings.engine.api_key_file and settings.engine.api_key_env:
        return "engine.apiKeyEnv: set it or engine.apiKeyFile, not both"
    return None


def _starvation_before_age(settings: Settings) -> str | None:
    if settings.scheduling.max_wait_seconds > settings.queue.max_age_seconds:
        return "scheduling.maxWaitSeconds: must not exceed queue.maxAgeSeconds, or requests expire before they go next"
    return None


def _unique_classes(settings: Settings) -> str | None:
    names = [c.name for c in settings.scheduling.classes]
    repeated = sorted({n for n in names if names.count(n) > 1})
    return f"scheduling.classes: name {repeated[0]!r} is listed twice" if repeated else None


def _body_fits_queue(settings: Settings) -> str | None:
    if settings.server.max_body_bytes > settings.queue.max_bytes:
        return "server.maxBodyBytes: must not exceed queue.maxBytes, or such a body could never wait its turn"
    return None


def _grpc_addresses(settings: Settings) -> str | None:
    try:
        exposed = [text for text in settings.grpc.listen if not parse_address(text).is_private]
    except ValueError as error:
        return f"grpc.listen: {error}"
    if exposed and not settings.grpc.tls_cert_file:
        return f"grpc.listen: {exposed[0]} is not a loopback address; it needs grpc.tlsCertFile and grpc.tlsKeyFile"
    return None


def _grpc_tls(settings: Settings) -> str | None:
    grpc = settings.grpc
    if bool(grpc.tls_cert_file) != bool(grpc.tls_key_file):
        return f"grpc.{'tlsKeyFile' if grpc.tls_cert_file else 'tlsCertFile'}: certificate and key need each other"
    if grpc.tls_client_ca_file and not grpc.tls_cert_file:
        return "grpc.tlsClientCaFile: has no effect without grpc.tlsCertFile; set it or remove this"
    return None


def _unique_objectives(settings: Settings) -> str | None:
    names = [name for c in settings.scheduling.classes for name in c.objectives]
    repeated = sorted({n for n in names if names.count(n) > 1})
    return f"scheduling.classes: objective {repeated[0]!r} is listed twice" if repeated else None


def _networks(settings: Settings) -> str | None:
    for at, network in enumerate(settings.gateway.trusted_proxies):
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            return f"gateway.trustedProxies[{at}]: {error}"
    return None


def _mode_of_engine(settings: Settings) -> str | None:
    problem = problem_of_mode(settings.engine.mode, settings.engine.facts)
    return f"engine.mode: {problem}" if problem else None


CHECKS: tuple[Callable[[Settings], str | None], ...] = (
    _embedding_model,
    _history_path,
    _history_server,
    _one_api_key,
    _starvation_before_age,
    _body_fits_queue,
    _unique_classes,
    _grpc_tls,
    _grpc_addresses,
    _unique_objectives,
    _networks,
    _mode_of_engine,
)


def class_of(scheduling: Scheduling, name: str) -> PriorityClass:
    """The class of that name; the one called default, or priority 0 and weight 1, where none has it."""
    if not scheduling.classes:
        return DEFAULT_CLASS
    by_name = {one.name: one for one in scheduling.classes}
    return by_name.get(name) or by_name.get(DEFAULT_CLASS.name, DEFAULT_CLASS)


def decode(document: Any) -> Settings:
    """Settings from plain values (a decoded YAML or JSON document; None is an empty file).

    Raises SettingsError whose message is `path: what is wrong`.
    """
    try:
        return msgspec.convert({} if document is None else document, Settings)
    except msgspec.ValidationError as error:
        raise SettingsError(readable(error)) from None


def readable(error: msgspec.ValidationError) -> str:
    """msgspec's `what - at `$.path`` turned into `path: what`; what CHECKS say starts with its path already."""
    if error.__cause__ is not None:
        return str(error.__cause__)
    what, _, place = str(error).partition(" - at ")
    path = place.removeprefix("`key` in ").strip("`").removeprefix("$").removeprefix(".")
    unknown = what.removeprefix("Object contains unknown field ")
    if unknown != what:
        return f"{path}.{unknown.strip('`')}: unknown field; remove it or correct its name".removeprefix(".")
    return f"{path or 'the file'}: {what}"


def dump(settings: Settings) -> bytes:
    """The canonical JSON of the settings: every field, keys sorted, so that equal settings give equal bytes."""
    return msgspec.json.encode(settings, order="sorted")


def digest(settings: Settings) -> str:
    """The first 12 hex digits of the SHA-256 of the canonical dump."""
    return hashlib.sha256(dump(settings)).hexdigest()[:12]
