from hubbub.protocol import counted


def test_one_thing_has_no_s():
    assert [counted(n, "report") for n in (0, 1, 2, 12345)] == [
        "0 reports",
        "1 report",
        "2 reports",
        "12,345 reports",
    ]
