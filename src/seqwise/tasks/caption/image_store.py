"""`ImageStore`: the image files of a captions table, in folders and zip archives. Image names → bytes.

A table may write `dog.jpg` for `images/dog.jpg`, or omit the suffix. It knows nothing of what a file contains.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from seqwise.data.reading import list_files, read_error
from seqwise.errors import DataError, suggest

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
ARRAY_SUFFIX = ".npy"
SUFFIXES = (*IMAGE_SUFFIXES, ARRAY_SUFFIX)


@dataclass(frozen=True)
class ImageLocation:
    """A file: its path relative to the folder or archive that contains it."""

    name: str
    container: Path

    @property
    def path(self) -> str:
        return str(self.container / self.name)


class ImageStore:
    """The images and arrays below a folder and in the zip archives directly inside it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.archives: dict[Path, zipfile.ZipFile] = {}
        self.locations: dict[str, ImageLocation] = {}
        self.by_name: dict[str, list[ImageLocation]] = defaultdict(list)
        self.by_stem: dict[str, list[ImageLocation]] = defaultdict(list)
        self.by_folder: dict[str, list[ImageLocation]] = defaultdict(list)
        try:
            for path in sorted(list_files(folder)):
                if path.suffix.lower() in SUFFIXES:
                    self._add(ImageLocation(path.relative_to(folder).as_posix(), folder))
                elif path.suffix.lower() == ".zip" and path.parent == folder:
                    self._add_archive(path)
        except OSError as error:
            raise read_error(error, error.filename or folder) from None

    def _add_archive(self, path: Path) -> None:
        try:
            archive = self.archives[path] = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            repair = f"Copy or download it again; `unzip -t {path}` checks it."
            raise DataError(f"the zip archive is damaged: {error}.", repair=repair, file=path) from None
        for name in sorted(archive.namelist()):
            is_hidden = any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(name).parts)
            if name.lower().endswith(SUFFIXES) and not is_hidden:
                self._add(ImageLocation(name, path))

    def _add(self, location: ImageLocation) -> None:
        path = PurePosixPath(location.name)
        self.locations.setdefault(location.name, location)
        self.by_name[path.name].append(location)
        self.by_stem[path.stem].append(location)
        self.by_folder[path.parent.as_posix()].append(location)

    def find(self, name: str) -> list[ImageLocation]:
        """Returns the file that a table calls `name`, or the frames of the folder it names; raises if ambiguous."""
        path = PurePosixPath(name.replace("\\", "/"))
        if location := self.locations.get(path.as_posix()):
            return [location]
        candidates = [each for each in self.by_name.get(path.name, []) if _is_path_end(path, each.name)]
        if not candidates:  # the features of dog.jpg are in dog.npy; "dog" may be dog.jpg
            has_suffix = path.suffix.lower() in SUFFIXES
            same_stem = self.by_stem.get(path.stem if has_suffix else path.name, [])
            candidates = [each for each in same_stem if each.name.endswith(ARRAY_SUFFIX) or not has_suffix]
        if len(candidates) == 1:
            return candidates
        folders = [folder for folder in self.by_folder if _is_path_end(path, folder)]
        if not candidates and len(folders) == 1:
            return sorted(self.by_folder[folders[0]], key=lambda each: natural_sort_key(each.name))
        names = [each.name for each in candidates] or [f"{folder}/" for folder in folders]
        if names:
            problem = f"{name!r} may be {' or '.join(names[:3])}."
            raise DataError(problem, repair="Write the path relative to the folder of the table.")
        raise DataError(f"there is no image {name!r}.", repair=self._suggest_fix(path.name))

    def _suggest_fix(self, name: str) -> str:
        if not self.locations:
            folder, archive = self.folder / "images", self.folder / "images.zip"
            return f"Put the images into {folder} or {archive}, or next to the table."
        suggestion = suggest(name, self.by_name)
        return suggestion if suggestion.startswith("Perhaps") else f"It was searched for below {self.folder}."

    def read(self, location: ImageLocation) -> bytes:
        try:
            if location.container in self.archives:
                return self.archives[location.container].read(location.name)
            return read_file(location)
        except (RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            # a password, an unsupported compression, and three kinds of damage
            cause = str(error) or "it ends too early"
            raise DataError(f"cannot be unpacked: {cause}.", repair="Pack it again.", file=location.path) from None

    def find_unused(self, used: Iterable[ImageLocation]) -> list[ImageLocation]:
        """Returns the files that are not among `used`, in order."""
        used = set(used)
        return [location for location in self.locations.values() if location not in used]


def read_file(location: ImageLocation) -> bytes:
    """Returns the content of a file in a folder."""
    try:
        return (location.container / location.name).read_bytes()
    except OSError as error:
        raise read_error(error, location.path) from None


def natural_sort_key(name: str) -> list[tuple[int, str]]:
    """Returns a sort key that puts frame 10 after frame 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _is_path_end(end: PurePosixPath, path: str) -> bool:
    return path == end.as_posix() or path.endswith(f"/{end.as_posix()}")
