"""Files of arrays: whole or absent."""

from __future__ import annotations

import numpy as np
import pytest

from dpfedvis.numerics.files import write_arrays


def test_files_are_whole_or_absent(tmp_path, monkeypatch):
    path = tmp_path / "file.npz"
    write_arrays(path, {"a": np.ones(3)})
    monkeypatch.setattr(np, "savez", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_arrays(path, {"a": np.zeros(3)})
    with np.load(path) as stored:
        np.testing.assert_array_equal(stored["a"], np.ones(3))
