"""Where the pictures of a table lie: files below its folder, and zip archives beside it. Names → bytes.

A table may write `dog.jpg` for `images/dog.jpg`, or leave the ending out. It knows nothing of what is in a file.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from seqwise.data.corpus.sources import list_files
from seqwise.data.reading import read_error
from seqwise.errors import DataError, nearest

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
ARRAY = ".npy"
ENDINGS = (*PICTURES, ARRAY)


@dataclass(frozen=True)
class ImageLocation:
    """A file: its path below the shelf, and the folder or archive that holds it."""

    name: str
    home: Path

    @property
    def shown(self) -> str:
        return str(self.home / self.name)


class Shelf:
    """The pictures and arrays below a folder and in the zip archives directly inside it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.archives: dict[Path, zipfile.ZipFile] = {}
        self.places: dict[str, ImageLocation] = {}
        self.by_name: dict[str, list[ImageLocation]] = defaultdict(list)
        self.by_stem: dict[str, list[ImageLocation]] = defaultdict(list)
        self.clips: dict[str, list[ImageLocation]] = defaultdict(list)  # folder → its files
        try:
            for path in sorted(list_files(folder)):
                if path.suffix.lower() in ENDINGS:
                    self._add(ImageLocation(path.relative_to(folder).as_posix(), folder))
                elif path.suffix.lower() == ".zip" and path.parent == folder:
                    self._open(path)
        except OSError as error:
            raise read_error(error, error.filename or folder) from None

    def _open(self, path: Path) -> None:
        try:
            archive = self.archives[path] = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            repair = f"Copy or download it again; `unzip -t {path}` checks it."
            raise DataError(f"the zip archive is damaged: {error}.", repair=repair, file=path) from None
        for name in sorted(archive.namelist()):
            hidden = any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(name).parts)
            if name.lower().endswith(ENDINGS) and not hidden:
                self._add(ImageLocation(name, path))

    def _add(self, place: ImageLocation) -> None:
        path = PurePosixPath(place.name)
        self.places.setdefault(place.name, place)
        self.by_name[path.name].append(place)
        self.by_stem[path.stem].append(place)
        self.clips[path.parent.as_posix()].append(place)

    def find(self, name: str) -> list[ImageLocation]:
        """The file that a table calls `name`, or the frames of the folder it names. Raises where that is unclear."""
        wanted = PurePosixPath(name.replace("\\", "/"))
        if place := self.places.get(wanted.as_posix()):
            return [place]
        found = _ending_in(self.by_name.get(wanted.name, []), wanted.as_posix())
        if not found:  # features of dog.jpg lie in dog.npy; "dog" may be dog.jpg
            stem = wanted.stem if wanted.suffix.lower() in ENDINGS else wanted.name
            alike = self.by_stem.get(stem, [])
            found = [p for p in alike if p.name.endswith(ARRAY) or wanted.suffix.lower() not in ENDINGS]
        if len(found) == 1:
            return found
        clips = [folder for folder in self.clips if _is_below(wanted.as_posix(), folder)]
        if not found and len(clips) == 1:
            return sorted(self.clips[clips[0]], key=lambda place: natural(place.name))
        several = [place.name for place in found] or [f"{folder}/" for folder in clips]
        if several:
            problem = f"{name!r} may be {' or '.join(several[:3])}."
            raise DataError(problem, repair="Write the path below the folder of the table.")
        raise DataError(f"there is no picture {name!r}.", repair=self._hint(wanted.name))

    def _hint(self, name: str) -> str:
        if not self.places:
            return (
                f"Put the pictures into {self.folder / 'images'} or {self.folder / 'images.zip'}, or beside the table."
            )
        found = nearest(name, self.by_name)
        return found if found.startswith("Perhaps") else f"It was looked for below {self.folder}."

    def read(self, place: ImageLocation) -> bytes:
        try:
            if place.home in self.archives:
                return self.archives[place.home].read(place.name)
            return read_file(place)
        except (RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            # a password, a rare packing, and three kinds of damage
            cause = str(error) or "it ends too early"
            raise DataError(f"cannot be unpacked: {cause}.", repair="Pack it again.", file=place.shown) from None

    def unused(self, used: Iterable[ImageLocation]) -> list[ImageLocation]:
        """Pictures that nothing names, in order."""
        known = {(place.home, place.name) for place in used}
        return [place for place in self.places.values() if (place.home, place.name) not in known]


def read_file(place: ImageLocation) -> bytes:
    """The content of a file in a folder."""
    try:
        return (place.home / place.name).read_bytes()
    except OSError as error:
        raise read_error(error, place.shown) from None


def natural(name: str) -> list[tuple[int, str]]:
    """A key that puts frame 10 behind frame 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _ending_in(places: list[ImageLocation], wanted: str) -> list[ImageLocation]:
    return [place for place in places if _is_below(wanted, place.name)]


def _is_below(wanted: str, path: str) -> bool:
    return path == wanted or path.endswith(f"/{wanted}")
