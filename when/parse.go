package when

import "strings"

// Parse parses the String of any kind of spec:
//
//	2026 11 21 * 19 0 0                        seven fields in UTC, see ParseCron
//	CRON_TZ=Europe/Berlin * * * 1-5 9 0 0      seven fields in a zone, see ParseCronIn
//	CRON_TZ=Europe/Berlin 0 9 * * 1-5          five fields, always with a zone, see ParseCron5
//	FINISHED, +1 DAY, START OF DAY, +4 HOURS   see ParseRepeat
//	WINDOWS Europe/Berlin Mon-Fri 09:00-17:00  see ParseWindows
//
// An error is a [SpecError].
func Parse(text string) (Spec, error) {
	switch {
	case strings.HasPrefix(text, windowsPrefix):
		return spec(parseWindows(text))
	case isRepeat(text):
		return spec(ParseRepeat(text))
	}
	at, rest, found, err := cutZone(text)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return spec(ParseCron(text))
	case len(strings.Fields(rest)) == fieldCount:
		return spec(parseCron(rest, at))
	default:
		return spec(ParseCron5(text, nil))
	}
}

// spec returns s as a Spec, or a nil Spec and err if err is not nil. Without it, a nil pointer
// would become a Spec that is not nil.
func spec[S Spec](s S, err error) (Spec, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
