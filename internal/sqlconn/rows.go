package sqlconn

import "strings"

// Arrays returns an array for each column of the rows. A column is its name and its type: bigint,
// text or bytea. One of type bytea may hold nil.
func Arrays(columns []string, rows [][]any) []any {
	args := make([]any, len(columns))
	for c, column := range columns {
		switch _, kind, _ := strings.Cut(column, " "); kind {
		case "bigint":
			args[c] = array[int64](rows, c)
		case "text":
			args[c] = array[string](rows, c)
		default:
			args[c] = array[[]byte](rows, c)
		}
	}
	return args
}

// array returns the values of one column of the rows. A value that does not have the type T becomes
// the zero value.
func array[T any](rows [][]any, column int) []T {
	a := make([]T, len(rows))
	for i, r := range rows {
		a[i], _ = r[column].(T)
	}
	return a
}
