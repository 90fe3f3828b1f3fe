"""What one field cannot say: rules in CEL that the API server holds a policy to. Written into the CRD by `make gen`."""

from typing import NamedTuple


class Rule(NamedTuple):
    """A rule: where it stands (`spec`, or a path in it), in CEL, and what the API server says where it is broken."""

    at: str
    cel: str
    message: str


# The API server holds the default `{}` of an object to its rules before it fills the fields in, hence the `has`.
_NO_GPUS = "(!has(self.gpus) || self.gpus == 0)"
_NO_CLAIMS = "(!has(self.resourceClaims) || self.resourceClaims.size() == 0)"

RULES: tuple[Rule, ...] = (
    Rule(
        "spec",
        "(has(self.podSet) ? 1 : 0) + (has(self.targetRef) ? 1 : 0) + (has(self.selector) ? 1 : 0) == 1",
        "set exactly one of podSet, targetRef and selector",
    ),
    Rule(
        "spec",
        "has(self.podSet) == has(oldSelf.podSet) && has(self.targetRef) == has(oldSelf.targetRef)",
        "podSet, targetRef and selector cannot take one another's place; make another policy",
    ),
    Rule(
        "spec",
        "!has(self.scheduling) || !has(self.scheduling.maxWaitSeconds) || !has(self.queue) || "
        "!has(self.queue.maxAgeSeconds) || self.scheduling.maxWaitSeconds <= self.queue.maxAgeSeconds",
        "scheduling.maxWaitSeconds must not exceed queue.maxAgeSeconds, or requests expire before they go next",
    ),
    Rule(
        "spec",
        "!has(self.server) || !has(self.server.maxBodyBytes) || !has(self.queue) || !has(self.queue.maxBytes) || "
        "self.server.maxBodyBytes <= self.queue.maxBytes",
        "server.maxBodyBytes must not exceed queue.maxBytes, or such a body could never wait its turn",
    ),
    Rule(
        "spec",
        "!has(self.podSet) || !has(self.podSet.storage) || "
        "(has(self.history) && has(self.history.store) && self.history.store == 'embedded')",
        "podSet.storage is for history.store embedded; set that, or remove the storage",
    ),
    Rule(
        "spec.scheduling",
        "!has(self.classes) || self.classes.all(one, !has(one.objectives) || one.objectives.all(objective, "
        "self.classes.exists_one(other, has(other.objectives) && objective in other.objectives)))",
        "classes: an objective may be listed in one class only",
    ),
    Rule(
        "spec.history",
        "!has(self.storeRows) || !has(self.windowRows) || self.storeRows >= self.windowRows",
        "storeRows must not be below windowRows, or the window could not be filled at a start",
    ),
    Rule(
        "spec.embedding",
        "has(self.model) == (has(self.kind) && self.kind == 'sentence-transformers')",
        "model is required where kind is sentence-transformers, and has no effect elsewhere",
    ),
    Rule(
        "spec.gateway",
        "!has(self.trustedProxies) || self.trustedProxies.all(network, isCIDR(network) || isIP(network))",
        "trustedProxies: each must be a network, as 10.0.0.0/8",
    ),
    Rule("spec.podSet", "self.workload == oldSelf.workload", "workload cannot be changed; make another policy"),
    Rule(
        "spec.podSet",
        "!has(self.storage) || self.workload == 'StatefulSet'",
        "storage needs workload StatefulSet, whose pods keep their volumes",
    ),
    Rule(
        "spec.podSet",
        "has(self.storage) == has(oldSelf.storage) && (!has(self.storage) || self.storage == oldSelf.storage)",
        "storage cannot be changed; make another policy",
    ),
    Rule(
        "spec.podSet.engine",
        f"{_NO_GPUS} || {_NO_CLAIMS}",
        "set gpus or resourceClaims, not both",
    ),
    Rule(
        "spec.podSet.engine",
        f"!has(self.kind) || self.kind == 'vllm' || ({_NO_GPUS} && {_NO_CLAIMS})",
        "the simulator has no use for a GPU; remove gpus and resourceClaims",
    ),
    Rule(
        "spec.podSet.engine.env[]",
        "has(self.value) != has(self.secret)",
        "set value or secret, one of the two",
    ),
    Rule(
        "spec.podSet.engine",
        "!has(self.args) || self.args.all(arg, !(arg.split('=')[0] in "
        "['--host', '--port', '--model', '--served-model-name', '--api-key', '--uds']))",
        "args: --host, --port, --model, --served-model-name, --uds and --api-key are the operator's to set; use "
        "podSet.model and podSet.apiKey",
    ),
    Rule(
        "spec.podSet.pod",
        "!has(self.labels) || self.labels.all(name, !name.startsWith('sagesched.io/') && "
        "!name.startsWith('app.kubernetes.io/'))",
        "labels that begin with sagesched.io/ or app.kubernetes.io/ are the operator's",
    ),
)
