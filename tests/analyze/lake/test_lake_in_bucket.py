"""A lake in a bucket of a real S3 server, started here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from bbrscope import fixtures
from bbrscope.analyze.lake.load_runs import AddOptions, file_bundles
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.lake import lake_upkeep, remote_files
from bbrscope.collect.lake.lake_place import open_place
from bbrscope.probes.base.errors import StoreError

BUNDLE = Path(fixtures.__file__).parent / "v2_x_spur"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3", "us-east-1").create_bucket(Bucket="fleet")
    yield "s3://fleet/lakes/one"
    server.stop()


def test_a_bucket_is_a_lake(bucket: str) -> None:
    with pytest.raises(StoreError, match="there is no lake"):
        open_place(bucket)
    place = open_place(bucket, create=True)
    (filed,) = file_bundles(bucket, [BUNDLE], AddOptions())
    assert (filed.run, filed.events, filed.exact) == ("v2_x_spur", 5266, True)
    assert file_bundles(bucket, [BUNDLE], AddOptions())[0].already
    assert list(lake_upkeep.check(place, read=True)) == []
    # Commands hand over paths, in which a URL has one slash less.
    with open_store(Path(bucket), read_only=True) as opened:
        assert opened.con.execute("SELECT count(*) FROM events").fetchone() == (5266,)
        phases = "SELECT count(*) > 5 FROM phases WHERE run = 'v2_x_spur'"
        assert opened.con.execute(phases).fetchone() == (True,)
        with pytest.raises(Exception, match="disabled"):
            opened.con.execute("FROM read_csv('/etc/passwd')")
    lake_upkeep.remove(place, ["v2_x_spur"])
    assert set(place.sizes()) == {"lake.json"}


def test_threads_that_share_a_file_get_what_each_asked_for(tmp_path: Path) -> None:
    place = open_place(tmp_path / "lake", create=True)
    path = tmp_path / "lake" / "x.parquet"
    with duckdb.connect() as con:
        con.execute(
            "COPY (SELECT range AS n, hash(range) AS h FROM range(200_000))"
            f" TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 4096)"
        )
        con.execute("SET threads = 4")
        remote_files.register(con, place, {path.name: path.stat().st_size})
        sums = "SELECT sum(n), sum(h::HUGEINT) FROM read_parquet"
        (there,) = con.execute(f"{sums}('{path}')").fetchall()
        for _ in range(20):
            assert con.execute(f"{sums}('bbrscope-lake://{path.name}')").fetchall() == [there]
