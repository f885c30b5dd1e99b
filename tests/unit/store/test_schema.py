from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from divvy.adapters.store.database import guarded, open_database
from divvy.adapters.store.migrations import versions
from divvy.adapters.store.schema import HEAD, check, prepare, revision
from divvy.adapters.store.tables import metadata
from divvy.errors import UnavailableError


@pytest.fixture
def database(tmp_path):
    database = open_database(f"sqlite:///{tmp_path / 'divvy.db'}")
    yield database
    database.dispose()


def differences(database):
    with database.writer.connect() as connection:
        return compare_metadata(MigrationContext.configure(connection), metadata)


def test_the_migrations_lead_to_the_schema_of_the_code(database):
    prepare(database)
    assert differences(database) == []


@pytest.mark.e2e
def test_the_migrations_lead_to_the_schema_of_the_code_on_postgresql(postgresql):
    database = open_database(postgresql.new())
    prepare(database)
    assert differences(database) == []
    database.dispose()


def test_the_head_is_the_newest_file():
    names = sorted(path.name for path in Path(versions.__file__).parent.glob("r*.py"))
    assert names[-1].startswith(f"r{HEAD}_")


def test_a_second_preparation_changes_nothing_and_a_newer_schema_is_refused(database):
    prepare(database)
    prepare(database)
    with database.write() as connection:
        assert revision(connection) == HEAD
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(UnavailableError) as caught:
        prepare(database)
    assert caught.value.code == "store-newer"


def test_a_file_that_is_no_database_is_refused(database, tmp_path):
    (tmp_path / "divvy.db").write_bytes(b"not a database at all" * 1000)
    with pytest.raises(UnavailableError) as caught:
        check(database)
    assert caught.value.code == "store-damaged"


def test_a_read_only_file_is_refused(database, tmp_path):
    prepare(database)
    database.dispose()
    (tmp_path / "divvy.db").chmod(0o400)
    readonly = sa.create_engine(f"sqlite:///file:{tmp_path / 'divvy.db'}?mode=ro&uri=true")
    with pytest.raises(UnavailableError) as caught, guarded(database.url), readonly.begin() as connection:
        connection.execute(sa.text("INSERT INTO counter VALUES ('x', 1)"))
    assert caught.value.code == "store-unwritable"
    readonly.dispose()
