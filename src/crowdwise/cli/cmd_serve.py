"""``crowdwise serve``: campaigns behind HTTP; and what goes with running a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli.options import option
from crowdwise.cli.outputs import emit, say
from crowdwise.errors import ExtraError, ReadError

serve = typer.Typer(
    help="Serve campaigns: an API, a page to label on and a page to watch.", invoke_without_command=True
)

ConfigOption = Annotated[Path | None, option("--config", help="A TOML file of settings.")]
DataOption = Annotated[str | None, option("--data", help="Folder for the database (SQLite).")]
DatabaseOption = Annotated[str | None, option("--database", help="postgresql://user:password@host/name.")]
HostOption = Annotated[str | None, option("--host", help="Address to listen on.")]
PortOption = Annotated[int | None, option("--port", help="Port to listen on.")]
WorkersOption = Annotated[int | None, option("--workers", help="Processes that answer requests.")]
CertificateOption = Annotated[str | None, option("--tls-certificate", help="PEM file of the certificate.")]
KeyOption = Annotated[str | None, option("--tls-key", help="PEM file of its key.")]
BaseOption = Annotated[str | None, option("--base-url", help="Address that people see, behind a proxy.")]
MediaOption = Annotated[str | None, option("--media", help="Folder of images, recordings and texts to show.")]
LogOption = Annotated[str | None, option("--log-format", help="json, text, or auto: text on a terminal.")]


@serve.callback(invoke_without_command=True)
def start(
    context: typer.Context, config: ConfigOption = None, data: DataOption = None, database: DatabaseOption = None,
    host: HostOption = None, port: PortOption = None, workers: WorkersOption = None,
    tls_certificate: CertificateOption = None, tls_key: KeyOption = None, base_url: BaseOption = None,
    media: MediaOption = None, log_format: LogOption = None,
) -> None:  # fmt: skip
    """Serve campaigns: an API, a page to label on and a page to watch.

    Every setting can also be given in a TOML file or as a variable CROWDWISE_SERVE_NAME; see the page about the server.

    Example: `crowdwise serve --port 8321`
    """
    try:
        from crowdwise.server.configuration import load_configuration
        from crowdwise.server.running import serve as run
    except ImportError as error:
        raise ExtraError("The server needs more packages: pip install 'crowdwise[serve]'.") from error
    context.obj = load_configuration({name: x for name, x in context.params.items() if name != "config"}, config)
    if context.invoked_subcommand is None:
        run(context.obj, say)


def store_of(context: typer.Context, new: bool = False) -> Any:
    """The store that the settings name, brought up to date; ``new``: it is made where there is none."""
    from crowdwise.store.database import Database

    folder = Path(context.obj.data)
    if not new and not context.obj.database and not (folder / "server.db").exists():
        raise ReadError(
            f"{folder} holds no store of a server. Name its folder before the word {context.info_name}: crowdwise "
            f"serve --data FOLDER {context.info_name} ..."
        )
    store = Database(context.obj.url)
    store.migrate()
    return store


FileArgument = Annotated[Path, typer.Argument(help="The file of the backup, .zip.", show_default=False)]
FolderArgument = Annotated[Path, typer.Argument(help="The folder of a campaign.", show_default=False)]
IdArgument = Annotated[str, typer.Argument(help="The id of the campaign.", show_default=False)]
NameOption = Annotated[str | None, option("--name", help="Its name on the server; by default that of the folder.")]


@serve.command("backup")
def backup(context: typer.Context, file: FileArgument) -> None:
    """Write everything in the store to a file, while the server runs or not. Say which store before the word backup.

    Example: `crowdwise serve --data FOLDER backup monday.zip`
    """
    from crowdwise.store.backups import back_up

    counts = back_up(store_of(context), file)
    say(f"{file}: {counts['campaigns']:,} campaigns, {counts['votes']:,} votes.")


@serve.command("restore")
def restore(context: typer.Context, file: FileArgument) -> None:
    """Fill an empty store from a backup, of SQLite or PostgreSQL alike. Say which store before the word restore.

    Examples:

    `crowdwise serve --data FOLDER restore monday.zip`

    `crowdwise serve --database postgresql://... restore monday.zip`
    """
    from crowdwise.store.backups import restore as fill

    counts = fill(store_of(context, new=True), file)
    say(f"Restored {counts['campaigns']:,} campaigns, {counts['votes']:,} votes.")


@serve.command("import")
def import_folder(context: typer.Context, folder: FolderArgument, name: NameOption = None) -> None:
    """Make a campaign of the server from a campaign folder, which stays as it is. Prints its id.

    Example: `crowdwise serve import birds`
    """
    from crowdwise.store.campaign_folders import import_folder as make

    with store_of(context, new=True).writing("import") as conn:
        row = make(conn, folder, name)
    emit(row.id)
    say(f"{row.name}: {row.n_answers:,} votes.")


@serve.command("export")
def export_folder(context: typer.Context, campaign: IdArgument, folder: FolderArgument) -> None:
    """Make a campaign folder from a campaign of the server.

    Example: `crowdwise serve export 4be0643f1d98 birds`
    """
    from crowdwise.store.campaign_folders import export_folder as make
    from crowdwise.store.campaign_rows import find_campaign

    with store_of(context).reading() as conn:
        n, others = make(conn, campaign, folder), find_campaign(conn, campaign).questions.values()
    say(f"{folder}: {n:,} votes.")
    for other in others:
        say(f"The answers to a further question are not in it: export or download those of {other}.")


TokenNameOption = Annotated[str, typer.Option("--name", help="What the token is for.")]


@serve.command("token")
def token(context: typer.Context, name: TokenNameOption = "command line") -> None:
    """Make another admin token, where the first was lost. Prints it once. Say which store before the word token.

    Example: `crowdwise serve --data FOLDER token`
    """
    from crowdwise.server.access_tokens import make_token

    with store_of(context).writing("tokens") as conn:
        secret, _ = make_token(conn, "admin", name)
    emit(secret)
