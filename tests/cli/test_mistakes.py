"""The mistakes that a new user makes: each is answered with what is wrong, where, and the fix, without a traceback.

Most are found before anything is read or trained; `trained_run` is one small run for those that need one.
"""

from __future__ import annotations

import json
import shutil

import pytest
import yaml

FILES = {
    "book.txt": "The old gate opens, and the small river passes the mill.\n" * 200,
    "reviews.csv": "text,label\n" + "".join(f"film number {i} is good,{'yes' if i % 2 else 'no'}\n" for i in range(60)),
    "sales.csv": "day,sales\n" + "".join(f"2024-01-{i:02},{i % 7}\n" for i in range(1, 31)),
    "ragged.csv": "text,label\nfine,yes\nnot fine,no,extra\n",
    "empty.txt": "",
    "table.docx": "PK\x03\x04",
    "shared.yaml": "model: gru\ntransformer: {heads: 7}\n",
    "typing.yaml": "network: {widht: 7}\n",
    "other-names.yaml": "lr: 0.1\nepochs: 3\n",
    "variants.yaml": "wide: {model: gru, transformer: {heads: 2}}\n",
    "notes.vec": "no vectors here\n",
    "ids.csv": "id,Text,stars\n" + "".join(f"{i},film number {i},{i % 3}\n" for i in range(60)),
    "compared/compare.yaml": "",
}

# Command line → words that the message must have. RUN is a trained language model (an LSTM).
MISTAKES: dict[str, list[str]] = {
    # Commands and names of options
    "": ["usage: seqwise COMMAND", "--help"],
    "trian book.txt": ["unknown command 'trian'", "'train'", "seqwise --help"],
    "--verison": ["unknown option '--verison'", "'--version'"],
    "train book.txt --modle gru": ["unknown option '--modle'", "'--model'", "seqwise train --help"],
    "train book.txt --width 64": ["'--width'", "'--network.width'"],
    "train book.txt --model": ["--model", "a value is missing"],
    "train": ["DATA or --resume RUN", "For example: seqwise train"],
    "train book.txt reviews.csv": ["unexpected argument 'reviews.csv'"],
    "compare book.txt --model gru": ["several models", "--models"],
    "vectors neerest v.vec king": ["vectors has no command 'neerest'", "'nearest'"],
    # Names of other tools
    "train book.txt --lr 0.01": ["--lr is --training.learning-rate here: --training.learning-rate 0.01"],
    "train book.txt --learning-rate=0.01": ["--training.learning-rate 0.01"],
    "train book.txt --epochs 10": ["--epochs is --budget here: --budget 10-epochs"],
    "train book.txt --max-epochs 10": ["--budget 10-epochs"],
    "train book.txt --batch-size 64": ["--training.batch-size 64"],
    "train book.txt --hidden-size 200": ["--network.width 200"],
    "train book.txt --num-layers 2": ["--network.depth 2"],
    "train book.txt --threads 4": ["OMP_NUM_THREADS=4"],
    "train book.txt --gpu": ["--gpu is --device here: --device cuda"],
    "compare book.txt --epochs 3": ["--budget 3-epochs"],
    "predict RUN the --num-beams 4": ["--num-beams is --beam here: --beam 4"],
    "vectors train book.txt --vector-size 50": ["--vector-size is --dim here: --dim 50"],
    # Values
    "train book.txt --model lstmm": ["--model", "expected one of", "lstm", "received 'lstmm'"],
    "train book.txt --budget 5": ["budget '5'", "5s or 5-tokens"],
    "train book.txt --model transformer --network.width 128 --transformer.heads 7": ["--network.width 140"],
    "train book.txt --network.width wide": ["--network.width", "expected INT", "received 'wide'"],
    "train book.txt --network.dropout 1.5": ["--network.dropout", "less than 1", "1.5"],
    "train book.txt --config missing.yaml": ["missing.yaml", "does not exist"],
    "train book.txt --config typing.yaml": ["typing.yaml", "network.widht", "'width'"],
    "train book.txt --config other-names.yaml": [
        "lr is training.learning_rate here: training: {learning_rate: 0.1}", "epochs is budget here: budget: 3-epochs",
    ],
    "train book.txt --plot curve.pdf": ["curve.pdf", ".svg or .png"],
    "compare book.txt --models gru,lstn": ["no family 'lstn'", "'lstm'"],
    "compare book.txt --seeds 0": ["--seeds", "at least 1", "received 0"],
    "compare book.txt --match time --budget 5M-tokens": ["--match time", "5M-tokens", "Change --budget or --match"],
    # Options without an effect
    "train book.txt --model gru --transformer.heads 7": ["--transformer.heads", "transformer only", "the model is gru"],
    "train book.txt --transformer.positions rotary": ["--transformer.positions", "the model is lstm"],
    "train book.txt --recurrent.reset after": ["--recurrent.reset", "gru and attentive-rnn only", "the model is lstm"],
    "train reviews.csv --task classify --target de": ["--target", "translate and forecast", "the task is classify"],
    "train book.txt --task language --forecast.season 7": ["--forecast.season", "forecast only", "is language"],
    "train book.txt --model ngram --network.width 9": ["--network.width has no effect with the model ngram"],
    "train book.txt --network.samples 9": ["--network.samples", "--network.output sampled"],
    "train book.txt --config shared.yaml": ["--transformer.heads", "the model is gru"],
    "check book.txt --horizon 3": ["--horizon", "forecast only", "the task is language"],
    "check book.txt --training.learning-rate 1": ["--training.learning-rate", "reads the data and trains nothing"],
    "compare book.txt --models gru,lstm --transformer.heads 2": ["--transformer.heads", "no compared family"],
    "compare book.txt --models gru --transformer.norm pre": ["--transformer.norm", "the model is gru"],
    "compare book.txt --models lstm --variants variants.yaml": ["wide", "transformer.heads", "the model is gru"],
    "predict RUN the --top 3": ["--top applies to classify, masked", "language"],
    "predict RUN the --beam 1": ["--beam applies to translate, caption", "language"],
    "evaluate RUN book.txt --dynamic-rate 0.1": ["--dynamic-rate", "Add --dynamic"],
    "evaluate RUN book.txt --cache-window 9": ["--cache-window", "Add --cache"],
    "evaluate RUN book.txt --dynamic --dynamic-decay 0.1": ["--dynamic-decay", "Add --dynamic-method rms"],
    "evaluate RUN book.txt --cache --cache-search --cache-theta 2": ["--cache-theta", "--cache-search"],
    "evaluate RUN book.txt --dynamic --dynamic-search --dynamic-rate 0.1": [
        "--dynamic-rate is chosen by --dynamic-search", "Leave out one of them",
    ],
    "evaluate RUN book.txt --softmax-temperature hot": ["--softmax-temperature", "hot"],
    "vectors train book.txt --x-max 10 --out v.safetensors": ["--x-max", "--method glove only", "skipgram"],
    # Files and data
    "train bok.txt": ["bok.txt", "no such file", "'book.txt'"],
    "train empty.txt": ["empty.txt", "empty"],
    "train folder": ["folder", "empty", ".txt"],
    "train table.docx": ["table.docx", ".docx"],
    "train ragged.csv --task classify": ["ragged.csv:3", "field"],
    "train reviews.csv --task classify --columns review,label": ["review", "text"],
    "train sales.csv --task forecast --target price": ["price", "sales"],
    "train builtin:doc": ["'doc'", "'docs'"],
    "evaluate RUN bok.txt": ["bok.txt", "'book.txt'"],
    "evaluate RUN": ["DATA is missing", "For example: seqwise evaluate"],
    "evaluate book.txt": ["RUN is missing", "received book.txt", "For example: seqwise evaluate"],
    "evaluate book.txt book.txt": ["book.txt is not a run: it is a file"],
    "evaluate book.txt RUN": ["book.txt is not a run, but ", "the first argument", "seqwise evaluate ", " book.txt"],
    "predict the RUN": ["the is not a run, but ", "the first argument", "seqwise predict "],
    "embed the RUN --out v.npy": ["the is not a run, but ", "the first argument", "seqwise embed "],
    "predict runs/nothing the": ["runs/nothing is not a run: it does not exist", "seqwise train"],
    "predict RUN missing.txt": ["missing.txt", "no such file", "echo missing.txt | seqwise predict RUN -"],
    "predict RUN missing.csv": ["missing.csv", "no such file", "echo missing.csv | seqwise predict RUN -"],
    "predict RUN data/missing.json.gz": ["data/missing.json.gz", "nor its folder"],
    "predict RUN folder/new": ["folder/new", "no such file", "echo folder/new | seqwise predict RUN -"],
    "predict RUN folder": ["folder: this is a folder", "echo folder | seqwise predict RUN -"],
    "embed RUN missing.csv --out v.npy": ["no such file", "echo missing.csv | seqwise embed RUN - --out FILE"],
    "check ids.csv": ["such as --task classify --columns Text,stars"],
    "check ids.csv --task classify": ["no column label", "--columns Text,stars"],
    "check ids.csv --columns Text,id": ["--columns Text,id does not determine the task", "Set --task too"],
    "check ids.csv --columns Text,star": ["no column 'star'", "'stars'"],
    "embed RUN the": ["--out is missing", "For example"],
    "embed RUN the --out v.docx": ["v.docx", ".npy or .jsonl"],
    "vectors nearest notes.vec king": ["notes.vec"],
    "vectors nearest book.txt": ["at least one word", "For example"],
    # Run folders
    "train --resume runs/nothing": ["runs/nothing is not a run: it does not exist"],
    "train RUN": ["is a run, not data", "seqwise train --resume "],
    "train compared": ["compared is a comparison, not data", "seqwise compare --resume compared"],
    "check RUN": ["is a run, not data"],
    "evaluate RUN RUN": ["is a run, not data"],
    "train --resume compared": ["compared is not a run, but a comparison", "seqwise compare --resume compared"],
    "train reviews.csv --task classify --init compared": ["compared is not a run, but a comparison"],
    "train --resume RUN --model gru": ["--model gru differs", "lstm", "--resume"],
    "train --resume RUN --seed 1 --network.width 16": ["--seed 1 differs", "0"],
    "train --resume RUN --training.no-such 1": ["'--training.no-such'"],
    "train --resume RUN --out other": ["its own folder", "--out"],
    "train book.txt --out RUN": ["already contains a run", "--resume"],
    "compare --resume RUN": ["is not a comparison", "compare.yaml"],
    "compare --resume RUN --seeds 3": ["resumed as it was planned", "--seeds"],
}  # fmt: skip


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_answered_with_what_where_and_the_fix(seqwise_command, workspace, trained_run, line):
    words = [str(trained_run()) if word == "RUN" else word for word in line.split()]
    before = sorted(workspace.rglob("*"))
    result = seqwise_command(*words)
    assert result.status == 2, result.err
    assert result.out == ""
    assert "Traceback" not in result.err
    assert "bug in Seqwise" not in result.err
    assert [part for part in MISTAKES[line] if part not in result.err] == [], result.err
    assert sorted(workspace.rglob("*")) == before


def test_there_are_about_fifty_mistakes():
    assert len(MISTAKES) >= 50


def test_resuming_with_the_values_of_the_run_is_accepted(seqwise_command, trained_run):
    result = seqwise_command("train", "--resume", trained_run(), "--model", "lstm", "--network.width", "16")
    assert result.status == 0
    assert "this run is already complete" in result.err


def test_saved_settings_of_a_run_can_be_used_with_another_model(seqwise_command, workspace, trained_run):
    """What the file has chosen for its own model is not an error for another one."""
    saved = trained_run("transformer") / "config.yaml"
    assert yaml.safe_load(saved.read_text())["transformer"]["heads"] is not None
    words = ["book.txt", "--config", saved, "--model", "gru", "--budget", "200-tokens", "--out", "run"]
    result = seqwise_command("train", *words)
    assert result.status == 0, result.err
    assert "heads" not in result.err
    result = seqwise_command("train", *words[:-1], "other", "--transformer.heads", "2")
    assert result.status == 2
    assert "--transformer.heads has an effect with the model transformer only" in result.err


def test_one_mistake_names_all_options_without_an_effect(seqwise_command, workspace):
    result = seqwise_command("train", "book.txt", "--transformer.heads", "2", "--context.length", "3")
    assert result.err == (
        "error: --transformer.heads has an effect with the model transformer only; the model is lstm.\n"
        "--context.length has an effect with the models feedforward and ngram only; the model is lstm.\n"
        "Leave them out.\n"
    )


def test_a_damaged_run_is_explained(seqwise_command, workspace, trained_run):
    shutil.copytree(trained_run(), workspace / "run")
    (workspace / "run" / "config.yaml").write_text("model: [\n")
    result = seqwise_command("predict", "run", "the")
    assert result.status == 2
    assert "run/config.yaml: this is not the settings file of a run." in result.err


def test_check_prints_mistakes_of_the_data_as_json(seqwise_command, workspace):
    result = seqwise_command("check", "ragged.csv", "--task", "classify", "--json")
    assert result.status == 2
    assert json.loads(result.out)["errors"][0]["line"] == 3
