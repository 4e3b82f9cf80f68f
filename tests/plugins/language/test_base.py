"""Files of weights that cannot be unpacked."""

from importlib.util import find_spec

import pytest

from p2pfl.core.errors import ModelError
from p2pfl.plugins.language import unpack_gguf

MISSING = [name for name in ("transformers", "gguf") if find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("language"),  # one process imports transformers
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]


def write_gguf(path, *, architecture):
    import numpy as np  # noqa: PLC0415 -- beside gguf
    from gguf import GGUFWriter  # noqa: PLC0415 -- an extra

    writer = GGUFWriter(str(path), architecture)
    writer.add_tensor("weights", np.ones((64, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.mark.parametrize("size", [0, 4, 40, 8000])
def test_a_file_that_is_cut_off_is_to_be_downloaded_again(tmp_path, size):
    file = tmp_path / "model.gguf"
    file.write_bytes(write_gguf(file, architecture="llama")[:size])
    with pytest.raises(
        ModelError, match=r"cannot read .*; it is cut off, damaged or no GGUF file, so download it again"
    ):
        unpack_gguf(file, tmp_path / "model")


def test_a_whole_file_of_an_unknown_architecture_is_to_be_replaced_by_another(tmp_path):
    file = tmp_path / "model.gguf"
    write_gguf(file, architecture="none-such")
    with pytest.raises(ModelError, match=r"cannot read .*; take a file of another architecture"):
        unpack_gguf(file, tmp_path / "model")
