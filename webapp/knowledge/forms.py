"""The form of an entry's texts, for a new draft and for an edit. Evidence is never typed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.validators import ProhibitNullCharactersValidator

from webapp.knowledge.models import MAX_CLAIM, Entry, EntryError

MAX_TEXT = 20_000  # characters of one field: an entry is a page, not an archive

HELP = {
    "title": "One sentence that somebody else could refute.",
    "mechanism": "Why it is faster, in terms of the machine.",
    "device_scope": "Where it was measured.",
    "versions_scope": "With which compiler and libraries.",
    "shapes_scope": "Which shapes and data types were timed, and which only checked.",
    "not_tested": "What a reader must not take for granted.",
    "counter_examples": "Where it was tried and did not help, or did harm.",
}


class EntryForm(forms.ModelForm):
    seen = forms.IntegerField(required=False, widget=forms.HiddenInput)
    note = forms.CharField(
        required=False,
        max_length=200,
        label="what changed, and why",
        help_text="One line for the history; may be left empty.",
    )

    class Meta:
        model = Entry
        fields = list(Entry.LABELS)
        labels = Entry.LABELS
        help_texts = HELP
        widgets = dict.fromkeys(Entry.LABELS, forms.Textarea)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in Entry.LABELS:
            field = self.fields[name]
            field.required = name in Entry.REQUIRED
            limit = MAX_CLAIM if name == "title" else MAX_TEXT
            field.validators = [ProhibitNullCharactersValidator(), _at_most(name, limit)]
            field.widget.attrs["rows"] = 3 if name != "mechanism" else 7
            if name in Entry.REQUIRED:
                remedy = Entry.REQUIRED[name]
                field.error_messages["required"] = f"The {Entry.LABELS[name]} is empty. {remedy}"

    def clean_title(self) -> str:
        """A claim is one line: it heads lists and travels to agents."""
        return " ".join(self.cleaned_data["title"].split())

    @property
    def texts(self) -> dict[str, str]:
        return {name: self.cleaned_data[name] for name in Entry.LABELS}

    def save_draft(self, by: User) -> Entry:
        """The new draft; the form's instance brings its evidence."""
        entry = self.instance
        note = self.cleaned_data["note"]
        entry.save_first(by, note or f"draft from c{entry.evidence['candidate']}")
        return entry

    def save_edit(self, by: User) -> bool:
        """False when the change was refused; the error is then on the form, with nothing lost."""
        entry = Entry.objects.get(pk=self.instance.pk)
        seen = self.cleaned_data["seen"] or 0
        try:
            entry.revise(self.texts, seen, by, self.cleaned_data["note"] or "edited")
        except EntryError as error:
            self.add_error(error.field or None, str(error))
            self.data = {**dict(self.data.items()), "seen": str(entry.last_revision)}
            return False
        return True


def _at_most(name: str, limit: int) -> Callable[[str], None]:
    def validate(text: str) -> None:
        if len(text) > limit:
            problem = (
                f"The {Entry.LABELS[name]} has {len(text):,} characters; the limit is {limit:,}."
            )
            raise forms.ValidationError(f"{problem} Shorten it.")

    return validate
