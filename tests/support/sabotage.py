"""Breaking the product on purpose. A copy of this file lies in every project that is to be found out."""

import importlib

import oncelake

_broken = oncelake.__dict__.setdefault("_broken_by_mutants", {})


def mend():
    """Put everything back that was broken."""
    for (module, name), whole in _broken.items():
        owner, last = _found(module, name)
        setattr(owner, last, whole)
    _broken.clear()


def _found(module, name):
    owner, _, last = name.rpartition(".")
    found = importlib.import_module(module)
    return (getattr(found, owner) if owner else found), last


def broken(module, name, replacement):
    """Replace a function or a method of the product; `replacement` gets the real one first."""
    owner, last = _found(module, name)
    whole = getattr(owner, last)
    _broken.setdefault((module, name), whole)

    def instead(*args, **kwargs):
        return replacement(whole, *args, **kwargs)

    setattr(owner, last, instead)
