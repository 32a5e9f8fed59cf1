package bedrock

import "strconv"

// The fixed statuses of the protocol.
const (
	statusOK      = "200 OK"
	statusQueued  = "202 Successfully queued"
	statusTimeout = "303 Timeout"
	statusLate    = "555 Timeout"
	statusNoJob   = "404 No job found"
	statusUnknown = "430 Unrecognized command"
)

// answer is the response to a command.
type answer struct {
	status string // "": statusOK
	body   *body  // JSON; nil: empty
	jobs   bool   // it contains claimed jobs
	close  bool   // the connection ends after it
}

// appendHead appends the status line, the headers and the blank line of an answer to out, and
// returns the result. An empty status means 200 OK. It always writes Content-Length, and
// Connection: close if a.close is set.
func appendHead(out []byte, a *answer) []byte {
	length := 0
	if a.body != nil {
		length = a.body.length()
	}
	status := a.status
	if status == "" {
		status = statusOK
	}
	out = append(append(out, status...), "\r\n"...)
	if a.close {
		out = append(out, "Connection: close\r\n"...)
	}
	out = append(out, "Content-Length: "...)
	out = strconv.AppendInt(out, int64(length), 10)
	return append(out, "\r\n\r\n"...)
}
