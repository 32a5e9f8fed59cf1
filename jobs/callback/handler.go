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

// Handler is an [http.Handler] that takes answers from outside: POST {prefix}/{name}/{key}, or POST {prefix}?name=...&key=... for what does not go well in a path. Make one
// with [NewHandler].
//
// It answers with a JSON object, which has a "status" (accepted, early, late, duplicate, or skipped) and the number of the "job" or the id of the "task" where one is known, or else an "error":
//
//	200 accepted, and on disk    400 unreadable, or too long a name or key    409 duplicate: the job has its answer
//	202 early: kept for a while  403 not signed, or Verify refused it         410 late: the job is over
//	200 skipped, by Read         404 no such path    405 not POST             413 too large     415 not JSON
//	503 the store is away: try again, after the seconds in Retry-After
//
// After a 503, and after no answer at all, it is safe to send the answer again.
type Handler struct {
	c      Config
	answer func(ctx context.Context, a jobs.Answer) (jobs.Receipt, error)
	count  struct {
		counters
		forbidden, bad atomic.Int64
	}
}

var _ http.Handler = (*Handler)(nil)

// NewHandler makes a Handler, or returns every problem of the configuration, joined. It does no I/O and starts nothing.
func NewHandler(c Config) (*Handler, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	h := &Handler{c: c}
	h.answer = h.toService
	return h, nil
}

// Stats returns what was counted.
func (h *Handler) Stats() Stats {
	c := &h.count
	return Stats{
		Accepted: c.accepted.Load(), Early: c.early.Load(), Late: c.late.Load(), Duplicate: c.duplicate.Load(), Skipped: c.skipped.Load(),
		Forbidden: c.forbidden.Load(), Bad: c.bad.Load(), Failed: c.failed.Load(),
	}
}

// toService gives an answer to the service, which has those of many requests share a transaction.
func (h *Handler) toService(ctx context.Context, a jobs.Answer) (jobs.Receipt, error) {
	if a.Refusal != "" {
		return h.c.Service.Reject(ctx, a.Name, a.Key, errors.New(a.Refusal))
	}
	return h.c.Service.Complete(ctx, a.Name, a.Key, json.RawMessage(a.Result))
}

// refusal is why a request is not served. Its text is for the client.
type refusal struct {
	status int
	text   string
}

// Error returns the text.
func (r *refusal) Error() string { return r.text }

// refuse returns a refusal.
func refuse(status int, text string) error { return &refusal{status: status, text: text} }

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, err := h.read(w, r)
	if err != nil {
		h.refused(w, err)
		return
	}
	// Whoever has sent an answer as a whole may go away: it is worth no less.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), h.c.Timeout)
	defer cancel()
	receipt, err := h.answer(ctx, a)
	if err != nil {
		h.failed(w, &a, err)
		return
	}
	h.count.receipt(receipt)
	reply(w, h.status(receipt), said{Status: strings.ToLower(string(receipt.Kind)), Job: receipt.Job, Task: receipt.Task})
}

// status is that for a receipt.
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

// read makes an answer of a request, or says why it cannot.
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
			return jobs.Answer{}, h.fault("Verify", err, forbidden(err))
		}
	}
	return h.make(r, &addr, body)
}

// address looks at path and method.
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

// forbidden is the refusal of who may not answer; why, only he is told whose URL was good once.
func forbidden(err error) error {
	if errors.Is(err, errExpired) {
		return refuse(http.StatusForbidden, "the URL is good no more")
	}
	return refuse(http.StatusForbidden, "forbidden")
}

// fault returns instead, but for the panic of a function of the user, which is told and is the server's fault.
func (h *Handler) fault(what string, err, instead error) error {
	if _, ok := errors.AsType[*task.PanicError](err); ok {
		h.c.Logger.Error("callback: Config."+what+" has panicked", "error", err)
		return refuse(http.StatusInternalServerError, "internal error")
	}
	return instead
}

// isJSON refuses a body that says it is something else.
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

// body reads the body.
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
		return nil, refuse(http.StatusRequestTimeout, "the body did not come in time")
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "the body did not come as a whole")
	}
	return body, nil
}

// make makes the answer.
func (h *Handler) make(r *http.Request, addr *address, body []byte) (jobs.Answer, error) {
	a := answerOf(addr.name, addr.key)
	if h.c.Read != nil {
		if err := h.custom(r, &a, body); err != nil {
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
		return a, refuse(http.StatusBadRequest, "no JSON, or a name or key that is missing, too long or malformed")
	}
	return a, nil
}

// custom has Read make the answer.
func (h *Handler) custom(r *http.Request, a *jobs.Answer, body []byte) error {
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
		return h.fault("Read", err, refuse(http.StatusBadRequest, "the answer cannot be read"))
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

// reason makes the text of a refusal of what a client sent.
func reason(text string) string {
	if text = strings.TrimSpace(strings.ToValidUTF8(text, "\ufffd")); text == "" {
		return noReason
	}
	return text
}

// refused answers a request that is not served.
func (h *Handler) refused(w http.ResponseWriter, err error) {
	var why *refusal
	switch {
	case errors.Is(err, ErrSkip):
		h.count.skipped.Add(1)
		reply(w, http.StatusOK, said{Status: "skipped"})
		return
	case !errors.As(err, &why):
		why = &refusal{status: http.StatusBadRequest, text: "bad request"}
	}
	if why.status == http.StatusForbidden {
		h.count.forbidden.Add(1)
	} else {
		h.count.bad.Add(1)
	}
	reply(w, why.status, said{Error: why.text})
}

// failed answers a request whose answer could not be written.
func (h *Handler) failed(w http.ResponseWriter, a *jobs.Answer, err error) {
	if errors.Is(err, jobs.ErrBadJob) {
		h.refused(w, refuse(http.StatusBadRequest, "the answer cannot be kept"))
		return
	}
	h.count.failed.Add(1)
	h.c.Logger.Warn("callback: an answer could not be written", "name", a.Name, "key", a.Key, "error", err)
	w.Header().Set("Retry-After", strconv.Itoa(int((h.c.RetryAfter+time.Second-1)/time.Second)))
	reply(w, http.StatusServiceUnavailable, said{Error: "the answer could not be written: send it again"})
}

// said is the body of an answer to a client.
type said struct {
	Status string  `json:"status,omitempty"`
	Job    jobs.ID `json:"job,omitempty"`
	Task   task.ID `json:"task,omitempty"`
	Error  string  `json:"error,omitempty"`
}

// reply writes the answer to a client. That one may be gone, and then nobody is to be told.
func reply(w http.ResponseWriter, status int, s said) {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // of a struct of texts and a number
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
