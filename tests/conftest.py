"""What tests of several directories share."""

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa


@pytest.fixture(scope="session")
def postgresql():
    """A PostgreSQL server of its own, on a Unix socket in a directory that goes with it."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        pytest.skip("PostgreSQL is not installed here (Debian: apt-get install postgresql)")
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    commands = found[-1].parent
    prefix = []
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as directory:
        if os.geteuid() == 0:  # it refuses to run as root
            if shutil.which("setpriv") is None:
                pytest.skip("setpriv is not here, and PostgreSQL refuses to run as root")
            prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            os.chown(directory, 65534, 65534)
        data = f"{directory}/data"
        init = [*prefix, str(commands / "initdb"), "-D", data, "-U", "divvy", "--auth=trust", "--no-sync"]
        subprocess.run([*init, "-E", "UTF8", "--locale=C"], check=True, capture_output=True, cwd=directory)
        options = ["-k", directory, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=40"]
        with (Path(directory) / "log").open("wb") as log:
            server = subprocess.Popen(
                [*prefix, str(found[-1]), "-D", data, *options], stdout=log, stderr=log, cwd=directory
            )
        try:
            numbers = itertools.count()
            yield SimpleNamespace(new=lambda: _new_database(directory, next(numbers)), process=server)
        finally:
            server.send_signal(signal.SIGINT)  # at once: it does not wait for clients
            server.wait(20)


def _new_database(directory, number):
    """Make an empty database and return its URL, once the server answers."""
    url = f"postgresql+psycopg://divvy@/%s?host={directory}"
    engine = sa.create_engine(url % "postgres", isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    limit = time.monotonic() + 30
    while True:
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql(f"CREATE DATABASE d{number}")
        except sa.exc.OperationalError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.1)
        else:
            return url % f"d{number}"
