"""Work in a process beside this one: the same result or error, however that process ends, and nothing that remains."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from fsd import beside as module
from fsd.beside import Assistant
from fsd.errors import UsageError

PATIENCE = 60
"""Seconds within which a process starts or ends, on a busy machine."""


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch):
    monkeypatch.setattr(module, "_cores", lambda: 2)


def where(number):
    """What was asked, the process that answers, and where it writes temporary files; whatever it prints is lost."""
    print("printed by the process beside")
    return number, os.getpid(), tempfile.gettempdir()


def refused(main):
    raise UsageError(f"the work must fail; process {main} is not {os.getpid()}")


def killed(main):
    """The name of the process that is left, the main one."""
    if os.getpid() != main:
        os.kill(os.getpid(), signal.SIGKILL)
    return "here"


def endless(folder):
    """Work without an end, which leaves its process number."""
    Path(folder, "begun").write_text(str(os.getpid()))
    time.sleep(1000)


def loaded(module):
    """Whether a module is loaded, in the process that answers."""
    return module in sys.modules


def lambda_maker():
    return lambda: None


def test_it_is_done_in_another_process_that_is_silent_and_shares_the_temporary_folder(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Assistant() as assistant:
        number, process, temporary = assistant.begin(where, 3)()
    assert number == 3
    assert process != os.getpid()
    assert temporary == str(tmp_path)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("reason", ["not apart", "one core", "no processes", "cannot be sent"])
def test_what_cannot_be_done_there_is_done_here(reason, monkeypatch):
    work, arguments = where, (3,)
    if reason == "one core":
        monkeypatch.setattr(module, "_cores", lambda: 1)
    if reason == "no processes":
        monkeypatch.setattr(module, "Pipe", lambda: (_ for _ in ()).throw(OSError(24, "Too many open files")))
    if reason == "cannot be sent":
        work, arguments = lambda_maker(), ()
    with Assistant(apart=reason != "not apart") as assistant:
        answer = assistant.begin(work, *arguments)()
    assert answer is None if reason == "cannot be sent" else answer[:2] == (3, os.getpid())


def test_an_error_is_raised_as_without_it():
    with Assistant() as assistant:
        result = assistant.begin(refused, os.getpid())
        with pytest.raises(UsageError, match=f"{os.getpid()} is not {os.getpid()}"):
            result()


def test_a_killed_process_costs_time_alone():
    with Assistant() as assistant:
        assert assistant.begin(killed, os.getpid())() == "here"
        # Nor is anything begun after that lost.
        assert assistant.begin(where, 3)()[:2] == (3, os.getpid())


def test_one_process_does_all_work_in_order_and_an_error_ends_it_not():
    with Assistant(["json"]) as assistant:
        begun = [assistant.begin(where, number) for number in range(3)]
        failed = assistant.begin(refused, os.getpid())
        unsent = assistant.begin(lambda_maker())
        not_sent_back = assistant.begin(lambda_maker)
        last = assistant.begin(loaded, "json")
        here = assistant.begin(where, 4, apart=False)
        assert here()[:2] == (4, os.getpid())
        assert last()
        with pytest.raises(UsageError):
            failed()
        assert unsent() is None
        assert not_sent_back()() is None
        numbers, processes, _ = zip(*(result() for result in begun), strict=True)
    assert numbers == (0, 1, 2)
    assert len(set(processes)) == 1
    assert processes[0] != os.getpid()


def test_modules_that_are_missing_cost_nothing():
    with Assistant(["no.such.module"]) as assistant:
        assert assistant.begin(where, 3)()[1] != os.getpid()


def test_it_can_be_entered_again():
    assistant = Assistant()
    for _ in range(2):
        with assistant:
            assert assistant.begin(where, 3)()[1] != os.getpid()


def test_without_threads_all_is_done_here(monkeypatch):
    def no_thread(*_):
        raise RuntimeError("can't start new thread")

    with Assistant() as assistant:
        monkeypatch.setattr(assistant._waiting, "submit", no_thread)
        assert assistant.begin(where, 3)()[:2] == (3, os.getpid())


def test_nothing_is_imported_from_the_working_folder(tmp_path, monkeypatch):
    for name in ("tempfile", "select", "fsd"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    with Assistant() as assistant:
        assert assistant.begin(where, 3)()[1] != os.getpid()
    assert not (tmp_path / "imported").exists()


def test_a_forked_process_does_not_keep_it_alive(tmp_path):
    script = (
        "import os, signal, time\n"
        "from fsd import beside as module\n"
        "from tests.fsd.test_beside import endless\n"
        "module._cores = lambda: 2\n"
        "with module.Assistant() as assistant:\n"
        f"    assistant.begin(endless, {str(tmp_path)!r})\n"
        "    if os.fork() == 0:\n"
        f"        time.sleep({PATIENCE})\n"
        f"    while not os.path.exists({str(tmp_path / 'begun')!r}):\n"
        "        time.sleep(.05)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment, start_new_session=True)
    try:
        process.wait(PATIENCE)
        assert gone(begun(tmp_path))
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def test_what_was_begun_is_done_here_after_the_end(tmp_path):
    with Assistant() as assistant:
        assistant.begin(endless, str(tmp_path))
        waiting = assistant.begin(where, 3)
    assert waiting()[:2] == (3, os.getpid())


def test_the_process_ends_with_the_block(tmp_path):
    with Assistant() as assistant:
        assistant.begin(endless, str(tmp_path))
        number = begun(tmp_path)
    assert gone(number)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_remains_of_a_killed_command(tmp_path, number):
    script = (
        "import signal\n"
        "from fsd import beside as module\n"
        "from tests.fsd.test_beside import endless\n"
        "if __name__ == '__main__':\n"
        # A shell starts what is in the background with an ignored Ctrl-C.
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    module._cores = lambda: 2\n"
        "    with module.Assistant() as assistant:\n"
        f"        assistant.begin(endless, {str(tmp_path)!r})()\n"
    )
    file = tmp_path / "script.py"
    file.write_text(script)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    # Of a group of its own, to which a terminal would send Ctrl-C.
    process = subprocess.Popen(
        [sys.executable, str(file)], env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        beside_it = begun(tmp_path)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        process.wait(PATIENCE)
        assert gone(beside_it)
    finally:
        process.kill()


def test_a_script_without_a_guard_runs_once(tmp_path):
    script = (
        "from fsd import beside as module\n"
        "module._cores = lambda: 2\n"
        "print('begun', flush=True)\n"
        "with module.Assistant() as assistant:\n"
        "    print(assistant.begin(len, 'x' * 300_000)())\n"
    )
    file = tmp_path / "script.py"
    file.write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, str(file)], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.splitlines() == ["begun", "300000"]
    assert done.stderr == ""


def begun(folder):
    """The number of the process that does the endless work."""
    return int(eventually(lambda: (folder / "begun").exists() and (folder / "begun").read_text()))


def gone(number):
    """Whether a process ends soon."""
    return eventually(lambda: not runs(number))


def runs(number):
    """Whether there is such a process that is no zombie."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def eventually(what):
    """The first answer that is one."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        answer = what()
        if answer:
            return answer
        time.sleep(0.05)
    return what()
