"""What is sent to the API and what it answers, with examples: OpenAPI is made of this."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from crowdwise import registry


def _storable(text: str) -> str:
    """Text that PostgreSQL and UTF-8 can hold."""
    if "\x00" in text:
        raise ValueError("a null character cannot be stored")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("half of a surrogate pair cannot be stored")
    return text


Plain = Annotated[str, AfterValidator(_storable)]
"""Text that every store can hold."""

Name = Annotated[StrictStr, Field(min_length=1, max_length=500), AfterValidator(_storable)] | StrictInt
Text = Annotated[Plain, Field(max_length=20_000)]
Positive = Annotated[float, Field(ge=1e-9, lt=1e12, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
Words = Annotated[StrictStr, AfterValidator(_storable)]
Answer = Words | StrictInt | StrictFloat | StrictBool | list[Words | StrictInt | StrictBool | dict[str, Any]]
"""A class, a number, left or right, a text, or a list of classes, places, tags or stretches."""


class Message(BaseModel):
    """Unknown fields are errors: a setting that is spelled wrong must not be ignored."""

    model_config = ConfigDict(extra="forbid")


def example(**fields: Any) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": [fields]})


class ScaleMessage(Message):
    """The scale of ratings."""

    min: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    max: Annotated[float, Field(allow_inf_nan=False)] = 100.0
    step: Positive = 1.0


class Changeable(Message):
    """Settings that may be changed while a campaign runs; what is left out stays."""

    budget: Positive | None = None
    target: Share | None = None
    max_error: Share | None = Field(None, description="Stop when gold proves that at most so many are wrong.")
    confidence: Share | None = Field(None, description="The confidence of that proof.")
    probability: Share | None = None
    stake: Positive | None = None
    min_votes: int | None = Field(None, ge=0, lt=2**31)
    max_votes: int | None = Field(None, ge=1, lt=2**31)
    price: Positive | None = None
    patience: Positive | None = Field(None, description="Seconds that a question stays with an annotator.")
    gold_rate: float | None = Field(None, ge=0, lt=1, description="Share of questions whose answer is known.")
    feedback: bool | None = Field(None, description="Say after a gold question whether the answer was right.")
    instructions: Text | None = None
    unsure: bool | None = Field(None, description="Offer I don't know as an answer.")
    consent: Text | None = Field(None, description="What people agree to when they sign up (Markdown).")
    practice: int | None = Field(None, ge=0, le=100, description="Gold questions that come first, with feedback.")
    screen: float | None = Field(None, ge=0, le=1, description="Share of practice to be right, to go on.")
    quota: int | None = Field(None, ge=1, lt=2**31, description="People who may sign up.")
    votes_each: int | None = Field(None, ge=1, lt=2**31, description="Votes of each who signs up.")
    completion_code: Plain | None = Field(None, max_length=500, description="Shown at the end; or an address.")


Question = Annotated[Plain, Field(pattern="^[A-Za-z0-9_-]{1,19}$")]
Title = Annotated[Plain, Field(min_length=1, max_length=200)]
Days = Annotated[float, Field(gt=0, le=3650)]


class AnswerMade(Message):
    """What is answered, and how answers are combined."""

    answer_type: str = registry.VOTES
    classes: Annotated[list[Name | StrictBool], Field(max_length=1000)] | None = None
    method: str | None = None
    params: dict[str, Any] | None = None
    scale: ScaleMessage | None = None


class QuestionMade(AnswerMade):
    """A further question about each item, answered with the first: a campaign of its own, ``ID.QUESTION``."""

    model_config = example(question="sharpness", answer_type="ratings", scale={"min": 1, "max": 5})
    question: Question
    instructions: Annotated[Text | None, Field(description="Shown above its answers.")] = None


class CampaignMade(Changeable, AnswerMade):
    """A new campaign."""

    model_config = example(name="birds", classes=["wren", "robin"], budget=500, target=0.95, instructions="Which bird?")
    name: Title
    strategy: str | None = None
    unknown: Literal["error", "add"] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    ties: bool | None = None
    question: Annotated[Question | None, Field(description="The name of the first of several questions.")] = None
    questions: Annotated[list[QuestionMade], Field(max_length=20)] | None = None


class CampaignChanged(Changeable):
    """Settings to change; ``null`` takes a limit away."""

    model_config = example(budget=800, target=0.97)
    name: Title | None = None


class StateChanged(Message):
    """``paused``: nothing is handed out; ``closed``: votes are not taken either."""

    model_config = example(state="paused")
    state: Literal["open", "paused", "closed"]


class CampaignMessage(BaseModel):
    """A campaign."""

    id: str
    name: str
    answer_type: str
    classes: list[Any]
    state: str
    votes: int
    spent: float
    created: float
    settings: dict[str, Any]


class Item(Message):
    """An item: ``payload`` is what is shown (``text``, ``markdown``, ``image``, ``audio``: an address; or anything)."""

    model_config = example(item="photo1", payload={"image": "https://example.org/1.jpg"}, gold=None, priority=1.0)
    item: Name
    payload: dict[str, Any] = Field(default_factory=dict)
    gold: Answer | None = None
    group: Name | StrictBool | None = None
    priority: Positive = 1.0


class GoldDraw(Message):
    """Draw so many items at random, to be labelled by experts."""

    model_config = example(n=100)
    n: Annotated[int, Field(ge=1, le=100_000)]


class GoldOfDraw(Message):
    """Gold labels of items that were drawn; the model never sees them."""

    model_config = example(gold=[["photo1", "wren"], ["photo7", "robin"]])
    gold: Annotated[list[tuple[Name, Answer]], Field(min_length=1, max_length=100_000)]


class ItemsChanged(Message):
    """What to change of some items."""

    model_config = example(items=["photo1"], closed=True)
    items: Annotated[list[Name], Field(min_length=1, max_length=100_000)]
    closed: bool | None = None
    priority: Positive | None = None
    gold: Answer | None = None


class SecondLook(Message):
    """What a second look says of an item: it stands in all results, and it counts for no annotator's accuracy. Without
    an answer the item is open again."""

    model_config = example(item="photo1", answer="wren", note="the tail decides")
    item: Name
    answer: Answer | None
    note: Annotated[Plain, Field(max_length=500)] = ""


class Annotator(Message):
    """An annotator, with the price of a vote where it is not that of the campaign."""

    model_config = example(annotator="ann", price=1.0)
    annotator: Name
    price: Positive | None = None


class AnnotatorChanged(Message):
    """What to change of an annotator."""

    model_config = example(available=False)
    available: bool | None = None
    max_votes: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    price: Positive | None = None


class Invitation(Message):
    """Who is invited: by a link that holds for some days."""

    model_config = example(annotator="ann", days=30)
    annotator: Name
    price: Positive | None = None
    days: Days = 30.0


class SignUp(Message):
    """One link for many people, which holds for some days."""

    model_config = example(days=30)
    days: Days = 30.0


class FolderItems(Message):
    """Which files of the media folder become items."""

    model_config = example(under="photos/")
    under: Annotated[Plain, Field(max_length=500, description="The beginning of their names.")] = ""


class VoteMessage(Message):
    """A vote; ``others`` are the answers to further questions about the item. ``id`` makes it count once, however often
    it is sent; annotators give no ``annotator`` but the ``ticket`` of their question. Of a lead's the ticket may be
    left out; with it, the order in which a pair was shown is kept."""

    model_config = example(item="photo1", annotator="ann", label="wren", id="ann-photo1")
    item: Name
    label: Answer
    annotator: Name | None = None
    id: Annotated[Plain, Field(min_length=1, max_length=200)] | None = None
    ticket: Annotated[Plain, Field(max_length=200)] | None = None
    seconds: Annotated[float, Field(ge=0, lt=1e9, allow_inf_nan=False)] | None = None
    others: Annotated[dict[Question, Answer], Field(max_length=20)] | None = None


class Ballot(Message):
    """Votes that are added all or none."""

    votes: Annotated[list[VoteMessage], Field(min_length=1, max_length=10_000)]


class ReceiptMessage(BaseModel):
    """What became of votes: all of it is on the disk. ``feedback`` is there where the campaign gives it."""

    added: int
    repeated: int
    feedback: list[dict[str, Any]] | None = None


class Asked(Message):
    """A question that an annotator has."""

    model_config = example(item="photo1", reason="blurred")
    item: Name
    reason: Annotated[Plain, Field(max_length=500)] = ""
    skipped: Annotated[bool, Field(description="False: ask again; for leads.")] = True
    annotator: Name | None = None


class Released(Message):
    """Which questions to take back: all of an annotator, or some items."""

    items: Annotated[list[Name], Field(max_length=10_000)] | None = None
    annotator: Name | None = None


class Undone(Message):
    """Which vote to take back: that on an item, or the last."""

    item: Name | None = None
    annotator: Name | None = None


class TokenMade(Message):
    """A new token."""

    model_config = example(role="reader", name="dashboard", campaign="4be0643f1d98", days=90)
    role: Literal["admin", "lead", "annotator", "reader"]
    name: Title
    campaign: Annotated[Plain, Field(max_length=32)] | None = None
    annotator: Name | None = None
    days: Days | None = None


class Questions(BaseModel):
    """What an annotator should do now; ``why_none`` where there is nothing."""

    questions: list[dict[str, Any]]
    state: str
    why_none: str | None = None
    code: str | None = None


class WebhookMade(Message):
    """Where events are sent; ``kinds`` empty: all."""

    model_config = example(url="https://example.org/hook", kinds=["state", "settings"])
    url: Annotated[Plain, Field(max_length=2000)]
    kinds: Annotated[list[Plain], Field(max_length=20)] = Field(default_factory=list)
