"""Who asks, and what they may do. Pure: decisions about names, roles and paths, no request in sight.

The rule behind the table (docs/explanation/identity.md): what the scheduler needs to be understood is visible
to everybody who is known (sizes, accounts, authors, states, times, reasons); what an author wrote or ran is
not (name, command, directory, environment, logs), except to the author, to the owners of the account and to
administrators.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from divvy.errors import DeniedError, DivvyError
from divvy.fleet.account import AccountTree


class Role(IntEnum):
    """What an identity may do at most; each role includes those before it."""

    VIEWER = 0
    """Reads what is public, and everything of its own jobs."""
    SUBMITTER = 1
    """Submits to the accounts it was given, and cancels its own jobs."""
    OWNER = 2
    """Also acts as owner wherever the budget names its user as one."""
    ADMIN = 3
    """Everything."""

    @property
    def word(self) -> str:
        """Return the name on the wire."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody known.

    Attributes:
        user: Login name.
        role: What it may do at most.
        accounts: Subtrees that it may submit to; None: all.
        via: ``socket`` or ``token``.
        uid: User id, where the kernel said so.
        gid: Group id, where the kernel said so.
    """

    user: str
    role: Role
    accounts: tuple[str, ...] | None = ()
    via: str = "token"
    uid: int | None = None
    gid: int | None = None

    @property
    def admin(self) -> bool:
        """Return whether it may do everything."""
        return self.role is Role.ADMIN

    def owns(self, tree: AccountTree, path: str) -> bool:
        """Return whether it acts as owner of an account: named there or anywhere above, with the role."""
        if self.admin:
            return True
        return self.role >= Role.OWNER and path in tree.row and self.user in tree.owners_over(path)

    def sees(self, tree: AccountTree, author: str, account: str) -> bool:
        """Return whether it may read what the author of a job wrote and what the job printed."""
        return self.user == author or self.owns(tree, account)

    def require(self, role: Role, doing: str) -> None:
        """Refuse an identity below a role.

        Raises:
            DeniedError: Saying what was asked and what is needed.
        """
        if self.role < role:
            raise denied(
                "role-low",
                f"{self.user} may not {doing}: role {self.role.word}",
                allowed=f"role {role.word} or above",
                fix="ask an administrator for a token with that role",
            )

    def require_submit(self, account: str) -> None:
        """Refuse an identity that may not submit to an account.

        Raises:
            DeniedError: Naming the accounts that it may use.
        """
        self.require(Role.SUBMITTER, "submit jobs")
        if self.accounts is None or any(within(account, path) for path in self.accounts):
            return
        raise denied(
            "account-denied",
            f"{self.user} may not submit to account {account!r} with this token",
            path="account",
            allowed=", ".join(self.accounts) or "no account",
            fix="choose one of these, or ask an administrator for a token with this account",
        )

    def require_cancel(self, tree: AccountTree, job: str, author: str, account: str) -> None:
        """Refuse an identity that may not end a job.

        Raises:
            DeniedError: If it is neither the author, nor an owner of the account, nor an administrator.
        """
        self.require(Role.SUBMITTER, "cancel jobs")
        if not self.sees(tree, author, account):
            raise denied(
                "job-not-yours",
                f"job {job} belongs to {author}",
                path="job",
                allowed=f"{author}, an owner of {account} or an administrator",
            )

    def require_split(self, tree: AccountTree, parent: str, path: str) -> None:
        """Refuse an identity that may not set the shares of an account's children.

        Args:
            tree: The tree in force.
            parent: Path of the account whose children are split; empty for the top.
            path: Where the change is, for the message.

        Raises:
            DeniedError: If it does not own the parent.
        """
        if self.owns(tree, parent):
            return
        known = parent in tree.row and parent
        owners = ", ".join(sorted(tree.owners_over(parent))) if known else ""
        raise denied(
            "share-not-yours",
            f"{self.user} may not change {path}",
            path=path,
            allowed=f"{owners} or an administrator" if owners else "an administrator",
        )


def within(path: str, subtree: str) -> bool:
    """Return whether an account is a subtree's top or lies below it."""
    return path == subtree or path.startswith(subtree + ".")


def denied(code: str, message: str, *, path: str = "", allowed: str = "", fix: str = "") -> DivvyError:
    """Return a refusal with status 403."""
    return DeniedError.one(code, message, path=path, allowed=allowed, fix=fix)
