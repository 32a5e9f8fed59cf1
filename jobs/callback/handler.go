package callback

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// Handler is an [http.Handler] that receives answers from outside. Create one with [NewHandler].
//
// The request is POST {prefix}/{name}/{key}. Names and keys that are unsuitable for a path can be
// parameters: POST {prefix}?name=...&key=...
//
// The response is a JSON object with a "status": accepted, early, late, duplicate or skipped. It
// also contains the number of the "job" or the id of the "task" if it is known. Instead of these, a
// rejected request gets an "error":
//
//	200 accepted, and stored     400 malformed, or too long      409 duplicate: already answered
//	202 early: stored for a time 403 not signed, or rejected     410 late: the job is over
//	200 skipped, by Read         404 no such path  405 not POST  413 too large  415 not JSON
//	408 the body came too slowly 500 a function of Config has panicked
//	503 the store is unavailable: try again after Retry-After seconds
//
// After a 503, or without a response, it is safe to send the answer again. Safe for concurrent use.
type Handler struct {
	c      Config
	answer func(ctx context.Context, a jobs.Answer) (jobs.Receipt, error)
	count  struct {
		counters
		forbidden, bad atomic.Int64
	}
}

var _ http.Handler = (*Handler)(nil)

// NewHandler returns a Handler with the defaults of c. It does no I/O and starts no goroutine.
// Returns all problems of c, joined. The Handler is then nil.
func NewHandler(c Config) (*Handler, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	h := &Handler{c: c}
	h.answer = h.toService
	return h, nil
}

// Stats returns the counts since NewHandler.
func (h *Handler) Stats() Stats {
	c := &h.count
	return Stats{
		Accepted: c.accepted.Load(), Early: c.early.Load(), Late: c.late.Load(), Duplicate: c.duplicate.Load(), Skipped: c.skipped.Load(),
		Forbidden: c.forbidden.Load(), Bad: c.bad.Load(), Failed: c.failed.Load(),
	}
}

// toService stores an answer with Service.Complete, or a refusal with Service.Reject, and returns
// the receipt, which tells the effect. It blocks until that is stored. Answers of concurrent
// requests share transactions there. Returns the error of the service.
func (h *Handler) toService(ctx context.Context, a jobs.Answer) (jobs.Receipt, error) {
	if a.Refusal != "" {
		return h.c.Service.Reject(ctx, a.Name, a.Key, errors.New(a.Refusal))
	}
	return h.c.Service.Complete(ctx, a.Name, a.Key, json.RawMessage(a.Result))
}

// refusal is the error of a rejected request: a status and a text for the client.
type refusal struct {
	status int
	text   string
}

// Error returns the text for the client.
func (r *refusal) Error() string { return r.text }

// refuse returns a refusal as an error.
func refuse(status int, text string) error { return &refusal{status: status, text: text} }

// ServeHTTP handles one request with an answer: it checks and reads the request, stores the answer
// within Config.Timeout, counts it and responds. It responds after the answer is stored, rejected
// or skipped. A client that disconnects after the whole body does not interrupt that. It implements
// [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, err := h.read(w, r)
	if err != nil {
		h.refused(w, err)
		return
	}
	// An answer that was received completely is stored even if the client disconnects.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), h.c.Timeout)
	defer cancel()
	receipt, err := h.answer(ctx, a)
	if err != nil {
		h.failed(w, &a, err)
		return
	}
	h.count.receipt(receipt)
	reply(w, h.status(receipt), response{Status: strings.ToLower(string(receipt.Kind)), Job: receipt.Job, Task: receipt.Task})
}

// status returns the HTTP status for a receipt, from Config.Status. The default applies without
// Config.Status, if its number is outside 200 to 599, and if it panics, which is logged. Defaults:
// 202 for Early, 409 for Duplicate, 410 for Late, else 200.
func (h *Handler) status(r jobs.Receipt) int {
	if h.c.Status != nil {
		code := 0
		err := guard.Call(func() error {
			code = h.c.Status(r)
			return nil
		})
		if err != nil {
			h.c.Logger.Error("callback: Config.Status has panicked", "error", err)
		}
		if code >= 200 && code <= 599 {
			return code
		}
	}
	switch r.Kind {
	case jobs.Early:
		return http.StatusAccepted
	case jobs.Duplicate:
		return http.StatusConflict
	case jobs.Late:
		return http.StatusGone
	}
	return http.StatusOK
}

// read converts a request to an answer. It neither counts nor responds.
//
// It checks the path and the method, with Config.Signer the signature, and without Config.Read the
// content type, which must be JSON. It reads the body and calls Verify and then Read, as far as
// they are set. Both get the body as an argument; r.Body is then empty.
//
// Returns ErrSkip if Read returns it, and a refusal if the request is rejected or Verify or Read
// panics.
func (h *Handler) read(w http.ResponseWriter, r *http.Request) (jobs.Answer, error) {
	addr, err := h.address(w, r)
	if err != nil {
		return jobs.Answer{}, err
	}
	if h.c.Signer != nil {
		if err := h.c.Signer.verify(&addr, time.Now()); err != nil {
			return jobs.Answer{}, forbidden(err)
		}
	}
	if h.c.Read == nil {
		if err := isJSON(r.Header); err != nil {
			return jobs.Answer{}, err
		}
	}
	body, err := h.body(w, r)
	if err != nil {
		return jobs.Answer{}, err
	}
	if h.c.Verify != nil {
		r.Body = http.NoBody
		if err := guard.Call(func() error { return h.c.Verify(r, body) }); err != nil {
			return jobs.Answer{}, h.orPanic("Verify", err, forbidden(err))
		}
	}
	return h.answerFrom(r, &addr, body)
}

// address parses the path and the parameters of a request, and checks its method. Returns a refusal
// with 404 for another path, 405 for another method than POST, and 400 for malformed parameters.
// Without Read, or with a Signer, the URL must also contain a valid name and key, else 400.
func (h *Handler) address(w http.ResponseWriter, r *http.Request) (address, error) {
	addr, err := parseAddress(r.URL, h.c.Prefix)
	switch {
	case errors.Is(err, errPath):
		return addr, refuse(http.StatusNotFound, err.Error())
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		return addr, refuse(http.StatusMethodNotAllowed, "answers are sent with POST")
	case err != nil:
		return addr, refuse(http.StatusBadRequest, err.Error())
	}
	if h.c.Read == nil || h.c.Signer != nil {
		a := answerOf(addr.name, addr.key)
		if err := checkAnswer(&a); err != nil {
			return addr, refuse(http.StatusBadRequest, "name or key is missing, too long or malformed")
		}
	}
	return addr, nil
}

// forbidden returns a refusal with status 403. Its text says that the URL has expired if err is
// errExpired, which requires a valid signature. Otherwise the text names no reason.
func forbidden(err error) error {
	if errors.Is(err, errExpired) {
		return refuse(http.StatusForbidden, "the URL has expired")
	}
	return refuse(http.StatusForbidden, "forbidden")
}

// orPanic returns instead if err is an ordinary error. If err is a panic of a function of the user,
// Config.what, it logs the panic and returns a refusal with status 500.
func (h *Handler) orPanic(what string, err, instead error) error {
	if _, ok := errors.AsType[*task.PanicError](err); ok {
		h.c.Logger.Error("callback: Config."+what+" has panicked", "error", err)
		return refuse(http.StatusInternalServerError, "internal error")
	}
	return instead
}

// isJSON returns a refusal with status 415 if the headers name a content type other than JSON, or a
// compression. A missing content type is accepted.
func isJSON(header http.Header) error {
	if e := header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return refuse(http.StatusUnsupportedMediaType, "bodies are not compressed")
	}
	text := header.Get("Content-Type")
	if text == "" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(text)
	if err != nil || kind != "application/json" && kind != "text/json" && !strings.HasSuffix(kind, "+json") {
		return refuse(http.StatusUnsupportedMediaType, "answers are application/json")
	}
	return nil
}

// body reads the whole body into memory and blocks for it. Returns a refusal: 413 if the body is
// larger than Config.MaxBody, 408 if the server's read deadline passes, 400 if it is incomplete.
func (h *Handler) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	large := refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", h.c.MaxBody))
	if r.ContentLength > h.c.MaxBody {
		return nil, large
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.c.MaxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, large
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refuse(http.StatusRequestTimeout, "the body was not received in time")
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "the body is incomplete")
	}
	return body, nil
}

// answerFrom builds the answer from the address and the body, by Config.Read or the default format.
// In that format [HeaderError] or the parameter "error" makes a refusal, and an empty body means
// null.
//
// Returns ErrSkip if Read returns it. Returns a refusal with 413 for a result that is too long,
// with 400 for an invalid answer, and the refusals of callRead.
func (h *Handler) answerFrom(r *http.Request, addr *address, body []byte) (jobs.Answer, error) {
	a := answerOf(addr.name, addr.key)
	if h.c.Read != nil {
		if err := h.callRead(r, &a, body); err != nil {
			return a, err
		}
	} else {
		if reasons := r.Header.Values(HeaderError); len(reasons) > 0 {
			addr.refused, addr.reason = true, reasons[0]
		}
		switch {
		case addr.refused:
			a.Refusal = reason(addr.reason)
		case len(body) > 0:
			a.Result = body
		}
	}
	if len(a.Result) > jobs.MaxData {
		return a, refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("the result has more than %d bytes", jobs.MaxData))
	}
	if err := checkAnswer(&a); err != nil {
		return a, refuse(http.StatusBadRequest, "the body is not JSON, or the name or key is missing, too long or malformed")
	}
	return a, nil
}

// callRead calls Config.Read with an empty r.Body and stores its answer in *a. The name and the key
// of *a are the defaults. Returns ErrSkip if Read returns it. Returns a refusal with 400 if Read
// fails, and with 500 if it panics, which is logged. Returns a refusal with 403 if the answer is
// for another job than a signed URL. After an error *a is unchanged.
func (h *Handler) callRead(r *http.Request, a *jobs.Answer, body []byte) error {
	r.Body = http.NoBody
	var read jobs.Answer
	err := guard.Call(func() (err error) {
		read, err = h.c.Read(r, body)
		return err
	})
	if errors.Is(err, ErrSkip) {
		return ErrSkip
	}
	if err != nil {
		return h.orPanic("Read", err, refuse(http.StatusBadRequest, "the answer cannot be read"))
	}
	if read.Name == "" {
		read.Name = a.Name
	}
	if read.Key == "" {
		read.Key = a.Key
	}
	if h.c.Signer != nil && (read.Name != a.Name || read.Key != a.Key) {
		return forbidden(errForged)
	}
	*a = read
	return nil
}

// reason returns the reason of a refusal that a client has sent: trimmed, with invalid UTF-8
// replaced. An empty one becomes noReason.
func reason(text string) string {
	if text = strings.TrimSpace(strings.ToValidUTF8(text, "\ufffd")); text == "" {
		return noReason
	}
	return text
}

// refused responds to a request without a stored answer, and counts it:
//
//   - ErrSkip: 200 with the status skipped, counted as skipped.
//   - A refusal with status 403: its text, counted as forbidden.
//   - Any other refusal: its status and text, counted as bad.
//   - Any other error: 400 with the text "bad request", counted as bad.
func (h *Handler) refused(w http.ResponseWriter, err error) {
	var why *refusal
	switch {
	case errors.Is(err, ErrSkip):
		h.count.skipped.Add(1)
		reply(w, http.StatusOK, response{Status: "skipped"})
		return
	case !errors.As(err, &why):
		why = &refusal{status: http.StatusBadRequest, text: "bad request"}
	}
	if why.status == http.StatusForbidden {
		h.count.forbidden.Add(1)
	} else {
		h.count.bad.Add(1)
	}
	reply(w, why.status, response{Error: why.text})
}

// failed responds to a request whose answer was not stored because of err. If the service rejects
// the answer as invalid, the response is 400. Any other error is logged and counted, and the
// response is 503 with Retry-After.
func (h *Handler) failed(w http.ResponseWriter, a *jobs.Answer, err error) {
	if errors.Is(err, jobs.ErrBadJob) {
		h.refused(w, refuse(http.StatusBadRequest, "the answer is not valid"))
		return
	}
	h.count.failed.Add(1)
	h.c.Logger.Warn("callback: cannot store an answer", "name", a.Name, "key", a.Key, "error", err)
	w.Header().Set("Retry-After", strconv.Itoa(int((h.c.RetryAfter+time.Second-1)/time.Second)))
	reply(w, http.StatusServiceUnavailable, response{Error: "the answer was not stored: send it again"})
}

// response is the JSON body of a response.
type response struct {
	Status string  `json:"status,omitempty"`
	Job    jobs.ID `json:"job,omitempty"`
	Task   task.ID `json:"task,omitempty"`
	Error  string  `json:"error,omitempty"`
}

// reply writes s as a JSON response with this status. It sends no body with 204 and 304. It sets
// the type, forbids caching, and ignores errors of the connection.
func reply(w http.ResponseWriter, status int, s response) {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // impossible for a struct of texts and a number
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	if status == http.StatusNoContent || status == http.StatusNotModified {
		w.WriteHeader(status)
		return
	}
	header.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
