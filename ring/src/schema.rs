//! Schemas of the fields of `ClusterRing` whose types are Kubernetes' own.
//!
//! k8s-openapi has them behind a feature that gives all of its 600 types a schema: minutes of a build for three.

use schemars::{Schema, SchemaGenerator, json_schema};

/// The schema of an optional `LabelSelector`.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    let strings = json_schema!({"type": "string"});
    json_schema!({
        "type": "object",
        "nullable": true,
        "properties": {
            "matchExpressions": {
                "description": "matchExpressions is a list of label selector requirements. The requirements are ANDed.",
                "type": "array",
                "items": {
                    "description": "A label selector requirement is a selector that contains values, a key, and an operator that relates the key and values.",
                    "type": "object",
                    "properties": {
                        "key": {
                            "description": "key is the label key that the selector applies to.",
                            "type": "string",
                        },
                        "operator": {
                            "description": "operator represents a key's relationship to a set of values. Valid operators are In, NotIn, Exists and DoesNotExist.",
                            "type": "string",
                        },
                        "values": {
                            "description": "values is an array of string values. If the operator is In or NotIn, the values array must be non-empty. If the operator is Exists or DoesNotExist, the values array must be empty. This array is replaced during a strategic merge patch.",
                            "type": "array",
                            "items": strings,
                        },
                    },
                    "required": ["key", "operator"],
                },
            },
            "matchLabels": {
                "description": "matchLabels is a map of {key,value} pairs. A single {key,value} in the matchLabels map is equivalent to an element of matchExpressions, whose key field is \"key\", the operator is \"In\", and the values array contains only \"value\". The requirements are ANDed.",
                "type": "object",
                "additionalProperties": strings,
            },
        },
    })
}

/// The schema of a `LabelSelector` that has to be there.
pub(crate) fn required_label_selector(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = label_selector(generator);
    schema.remove("nullable");
    schema
}

/// The schema of how many shards a group is to have.
pub(crate) fn group_shards(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "nullable": true, "minimum": 1.0, "maximum": 1000.0})
}

/// The schema of an optional drain deadline in seconds: OpenAPI has no format for 16 bits, and API servers warn of it.
pub(crate) fn drain_deadline(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "nullable": true, "minimum": 5.0, "maximum": 3600.0})
}

/// The schema of an optional [`PlacedBy`](crate::placed_by::PlacedBy). A text or an object has no type, so each alternative says
/// what the other may not be: `pattern` is asked of texts alone, `required` of objects.
pub(crate) fn placed_by(_: &mut SchemaGenerator) -> Schema {
    let only = |property: &str| json_schema!({"required": [property], "maxProperties": 1, "pattern": "[^\\s\\S]"});
    json_schema!({
        "x-kubernetes-preserve-unknown-fields": true,
        "nullable": true,
        "anyOf": [{"enum": ["Namespace", null], "maxProperties": 0}, only("label"), only("annotation")],
    })
}

/// The schema of a list of `Condition`.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "description": "Condition contains details for one aspect of the current state of this API Resource.",
            "type": "object",
            "properties": {
                "lastTransitionTime": {
                    "description": "lastTransitionTime is the last time the condition transitioned from one status to another. This should be when the underlying condition changed.  If that is not known, then using the time when the API field changed is acceptable.",
                    "type": "string",
                    "format": "date-time",
                },
                "message": {
                    "description": "message is a human readable message indicating details about the transition. This may be an empty string.",
                    "type": "string",
                },
                "observedGeneration": {
                    "description": "observedGeneration represents the .metadata.generation that the condition was set based upon. For instance, if .metadata.generation is currently 12, but the .status.conditions[x].observedGeneration is 9, the condition is out of date with respect to the current state of the instance.",
                    "type": "integer",
                    "format": "int64",
                },
                "reason": {
                    "description": "reason contains a programmatic identifier indicating the reason for the condition's last transition. Producers of specific condition types may define expected values and meanings for this field, and whether the values are considered a guaranteed API. The value should be a CamelCase string. This field may not be empty.",
                    "type": "string",
                },
                "status": {
                    "description": "status of the condition, one of True, False, Unknown.",
                    "type": "string",
                },
                "type": {
                    "description": "type of condition in CamelCase or in foo.example.com/CamelCase.",
                    "type": "string",
                },
            },
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        },
    })
}

/// The schema of an optional `Time`.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time", "nullable": true})
}

/// The schema of a list of names of namespaces.
pub(crate) fn namespaces(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "items": {"type": "string", "minLength": 1, "maxLength": 63},
        "x-kubernetes-list-type": "set",
    })
}
