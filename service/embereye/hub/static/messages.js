// The console's texts in the page's language; numbers, dates and times as its reader writes them.

const texts = JSON.parse(document.getElementById("messages").textContent);
const languageOfPage = document.documentElement.lang;
const plurals = new Intl.PluralRules(languageOfPage);

/** The reader's own variant of the page's language, such as de-AT, which has its own dates and times. */
export const locale = navigator.languages.find((candidate) => candidate.split("-")[0] === languageOfPage) || languageOfPage;

/** The text called `key`, with `values` at its {names}. `n` chooses the form of a text that has one for each plural. */
export function t(key, values = {}) {
  const found = texts[key] ?? key;
  const text = typeof found === "string" ? found : found[plurals.select(values.n)] ?? found.other;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? (typeof values[name] === "number" ? figure(values[name]) : values[name]) : whole));
}

/** True if there is a text called `key`. */
export const hasText = (key) => key in texts;

const formats = new Map();
function format(kind, options) {
  const key = JSON.stringify(options) + kind.name;
  if (!formats.has(key)) formats.set(key, new kind(locale, options));
  return formats.get(key);
}

/** `number` as the reader writes it, with `digits` after its point, or as many as it has. */
export const figure = (number, digits) => format(Intl.NumberFormat, { minimumFractionDigits: digits, maximumFractionDigits: digits ?? 3 }).format(number);

const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit" };

/** The time of day at `ms`, in the reader's time zone or in `timeZone`. `more`: other options of Intl.DateTimeFormat. */
export const timeOfDay = (ms, more = {}) => format(Intl.DateTimeFormat, { ...CLOCK, ...more }).format(ms);

/** The date and the time of day at `ms`, in the reader's time zone. */
export const dateAndTime = (ms) => format(Intl.DateTimeFormat, { dateStyle: "short", timeStyle: "medium" }).format(ms);

const offset = (ms, timeZone) => format(Intl.DateTimeFormat, { timeZone, timeZoneName: "longOffset" }).formatToParts(ms).find((part) => part.type === "timeZoneName").value;

/** The hub's time of day at `ms` with the name of its zone; "" if the reader's clock shows the same, or the zone is unknown. */
export function hubTime(ms, timeZone) {
  if (!timeZone) return "";
  try {
    return offset(ms, timeZone) === offset(ms) ? "" : t("hub.time", { time: timeOfDay(ms, { timeZone, timeZoneName: "short" }) });
  } catch { return ""; }  // a browser that does not know the zone
}

/** Offer the languages of the hub in `select`. This browser stores the choice, and loads the page again. */
export function offerLanguages(select) {
  for (const language of document.getElementById("messages").dataset.languages.split(" ")) {
    const option = new Option(language.toUpperCase(), language, false, language === languageOfPage);
    option.ariaLabel = `${option.text}, ${new Intl.DisplayNames([language], { type: "language" }).of(language)}`;
    select.add(option);
  }
  select.onchange = () => {
    const path = document.documentElement.dataset.base || "/";
    document.cookie = `embereye-language=${select.value}; path=${path}; max-age=31536000; SameSite=Strict`;
    location.reload();
  };
}
