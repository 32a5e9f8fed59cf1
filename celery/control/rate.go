package control

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
)

// rateOf returns a rate limit of Celery as task.ParseRate reads it; "" for none. Celery writes a
// number for starts in a second, or a text such as "10/m" or "0.5/s".
func rateOf(v any) (string, error) {
	var text string
	switch v := v.(type) {
	case nil:
	case string:
		text = v
	case json.Number:
		text = v.String()
	default:
		return "", errors.New("not a rate")
	}
	if text == "" {
		return "", nil
	}
	number, unit, _ := strings.Cut(text, "/")
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || n < 0 || n > math.MaxInt32 {
		return "", errors.New("could not convert string to float: " + repr(number))
	}
	if unit == "" {
		unit = "s"
	}
	// a rate with a fraction is the same rate in a longer unit
	for n != math.Trunc(n) && unit != "h" {
		n *= 60
		unit = map[string]string{"s": "m", "m": "h"}[unit]
		if unit == "" {
			break
		}
		n = math.Round(n*1e6) / 1e6
	}
	switch {
	case unit != "s" && unit != "m" && unit != "h":
		return "", errors.New("the unit of a rate is s, m or h")
	case n == 0:
		return "", nil
	case n < 1:
		return "", errors.New("a rate of less than one in an hour is not possible")
	}
	return strconv.FormatInt(int64(n), 10) + "/" + unit, nil
}
