package when

import (
	"slices"
	"strings"
	"time"
)

// vocabulary holds the words of phrases that may be misspelled. Of two words that are equally near,
// closest takes the first: "minuts" means minutes.
var vocabulary = [...]string{
	"in", "at", "every", "now", "on", "the", "and", "next", "today", "tomorrow", "noon", "midnight", "weekday",
	"seconds", "second", "minutes", "minute", "hours", "hour", "days", "day", "weeks", "week", "months", "month", "years", "year",
	"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday",
	"january", "february", "march", "april", "june", "july", "august", "september", "october", "november", "december",
}

// synonyms maps words that phrases do not have to the words with the same or a similar meaning.
var synonyms = map[string]string{
	"s": "seconds", "sec": "seconds", "secs": "seconds", "m": "minutes", "min": "minutes", "mins": "minutes", "h": "hours", "hr": "hours", "hrs": "hours",
	"d": "days", "w": "weeks", "mo": "months", "y": "years", "yr": "years", "yrs": "years", "fortnight": "2 weeks",
	"after": "in", "each": "every", "tonight": "today", "tmrw": "tomorrow", "midday": "noon", "this": "", "exactly": "",
	"hourly": "every hour", "daily": "every day", "weekly": "every monday", "monthly": "every month on the 1st", "nightly": "every day", "yearly": "every month on the 1st",
	"weekdays": "weekday", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9", "ten": "10",
	"fifteen": "15", "twenty": "20", "thirty": "30", "first": "1st", "third": "3rd", "other": "2nd",
}

// nearest returns an accepted phrase that is similar to a refused one: with words replaced, "at"
// inserted or a first word added. If no such change helps, it returns an example for the phrase's
// first word.
func nearest(text string, now time.Time) string {
	plain := strings.Replace(repaired(text), "half an hour", "30 minutes", 1)
	for _, head := range [...]string{"", "in ", "at ", "every "} {
		for _, try := range [...]string{plain, timeLast(plain)} {
			if try = head + try; len(try) <= maxPhrase {
				if _, err := understand(try, now); err == nil {
					return try
				}
			}
		}
	}
	switch first, _, _ := strings.Cut(plain, " "); first {
	case "in":
		return "in 5 minutes"
	case "every":
		return "every weekday at 9am"
	default:
		return "at 7pm tomorrow"
	}
}

// repaired returns the text in lower case with single spaces. It replaces unknown words by their
// synonyms or the nearest known words, and corrects the ending of numbers such as "2th".
func repaired(text string) string {
	var b strings.Builder
	tokens := tokenize(text)
	for i, t := range tokens {
		known := t.kind != word || t.text == "am" || t.text == "pm" || t.text == "z" || t.text == "t" || t.text == "a" || t.text == "an" ||
			named(t, weekdayNames[:]) >= 0 || named(t, monthNames[:]) >= 0 || slices.Contains(vocabulary[:], t.text)
		suffix := t.glued && (t.text == "st" || t.text == "nd" || t.text == "rd" || t.text == "th")
		replaced := t.text
		if suffix && i > 0 {
			if n, ok := number(tokens[i-1].text, 9999); ok {
				replaced = strings.TrimLeft(ordinal(n), "0123456789")
			}
		}
		if !known && !suffix {
			if to, ok := synonyms[t.text]; ok {
				replaced = to
			} else {
				replaced = closest(t.text)
			}
		}
		if i > 0 && (!t.glued || t.kind == word && !suffix && t.text != "am" && t.text != "pm" && t.text != "t" && t.text != "z") {
			b.WriteByte(' ')
		}
		b.WriteString(replaced)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// timeLast inserts "at" before the time at the end of a phrase. It returns the text unchanged if it
// finds no time, or if "at" precedes the time already.
func timeLast(text string) string {
	words := strings.Fields(text)
	for i := len(words) - 1; i > 0; i-- {
		p := phrase{tokens: tokenize(strings.Join(words[i:], " "))}
		if p.atTime() && words[i-1] != "at" {
			return strings.Join(words[:i], " ") + " at " + strings.Join(words[i:], " ")
		}
	}
	return text
}

// closest returns the word of the vocabulary with the smallest distance to w. It returns w if all
// words differ too much: by more than a third of w's letters, or by more than two.
func closest(w string) string {
	best, least := w, min(len(w)/3, 2)+1
	for _, v := range vocabulary {
		if d := distance(w, v); d < least {
			best, least = v, d
		}
	}
	return best
}

// distance returns the number of letters to insert, delete or replace to change a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := left
			if a[i] != b[j] {
				cost++
			}
			left = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
