"""The messages of the Open Inference Protocol over gRPC, built here: no generated code, no compiler.

Names and numbers are those of KServe's ``grpc_predict_v2.proto``; ``ModelConfig``, which KServe lacks, is the
part of Triton's that every model has.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

SERVICE: Final = "inference.GRPCInferenceService"
_TYPES: Final = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
}
_PARAMETERS: Final = "InferParameter map"
_TENSOR: Final = f"name string 1, datatype string 2, shape int64* 3, parameters {_PARAMETERS} 4"
_WHOLE_TENSOR: Final = f"{_TENSOR}, contents InferTensorContents 5"
_NAMED: Final = "name string 1, version string 2"
_CONFIG_TENSOR: Final = "name string 1, data_type DataType 2, dims int64* 4"
#: Name of a message to its fields: name, type (``*``: repeated; ``map``: by text; ``?``: one of), number.
_MESSAGES: Final = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "live bool 1",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "ready bool 1",
    "ModelReadyRequest": _NAMED,
    "ModelReadyResponse": "ready bool 1",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "name string 1, version string 2, extensions string* 3",
    "ModelMetadataRequest": _NAMED,
    "TensorMetadata": "name string 1, datatype string 2, shape int64* 3",
    "ModelMetadataResponse": "name string 1, versions string* 2, platform string 3, inputs TensorMetadata* 4,"
    " outputs TensorMetadata* 5",
    "ModelConfigRequest": _NAMED,
    "ModelInput": _CONFIG_TENSOR,
    "ModelOutput": "name string 1, data_type DataType 2, dims int64* 3",
    "ModelConfig": "name string 1, platform string 2, max_batch_size int32 4, input ModelInput* 5,"
    " output ModelOutput* 6, backend string 17",
    "ModelConfigResponse": "config ModelConfig 1",
    "InferParameter": "bool_param bool? 1, int64_param int64? 2, string_param string? 3,"
    " double_param double? 4, uint64_param uint64? 5",
    "InferTensorContents": "bool_contents bool* 1, int_contents int32* 2, int64_contents int64* 3,"
    " uint_contents uint32* 4, uint64_contents uint64* 5, fp32_contents float* 6, fp64_contents double* 7,"
    " bytes_contents bytes* 8",
    "InferInputTensor": _WHOLE_TENSOR,
    "InferRequestedOutputTensor": f"name string 1, parameters {_PARAMETERS} 2",
    "InferOutputTensor": _WHOLE_TENSOR,
    "ModelInferRequest": f"model_name string 1, model_version string 2, id string 3,"
    f" parameters {_PARAMETERS} 4, inputs InferInputTensor* 5, outputs InferRequestedOutputTensor* 6,"
    " raw_input_contents bytes* 7",
    "ModelInferResponse": f"model_name string 1, model_version string 2, id string 3,"
    f" parameters {_PARAMETERS} 4, outputs InferOutputTensor* 5, raw_output_contents bytes* 6",
}
#: By number.
_DATA_TYPES: Final = (
    *("INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "FP32", "FP64", "STRING", "BF16"),
)


@cache
def messages() -> dict[str, Any]:
    """Return the classes of all messages by name; needs ``protobuf``."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415 - an extra

    file = descriptor_pb2.FileDescriptorProto(
        name="divvy/open_inference.proto", package="inference", syntax="proto3"
    )
    kinds = file.enum_type.add(name="DataType")
    for number, name in enumerate(_DATA_TYPES):
        kinds.value.add(name=f"TYPE_{name}", number=number)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields.split(", ") if fields else ():
            _add_field(message, text.split())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}"))
        for name in _MESSAGES
    }


def _add_field(message: Any, words: list[str]) -> None:
    """Add a field to a message's descriptor; a map is, on the wire, a list of key and value."""
    name, kind, number = words[0], words[1], int(words[-1])
    if len(words) == 4:
        entry_name = "".join(part.capitalize() for part in name.split("_")) + "Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        _add_field(entry, ["key", "string", "1"])
        _add_field(entry, ["value", kind, "2"])
        kind = f"{message.name}.{entry_name}*"
    field = message.field.add(name=name, number=number, label=3 if kind.endswith("*") else 1)
    if kind.endswith("?"):
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0
    plain = kind.rstrip("*?")
    if plain in _TYPES:
        field.type = _TYPES[plain]
    else:
        field.type = 14 if plain == "DataType" else 11
        field.type_name = f".inference.{plain}"
