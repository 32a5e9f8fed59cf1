package httpinspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/swarmiji/swarmiji/inspect"
)

// maxAnswer is the largest answer that a client reads, in bytes.
const maxAnswer = 64 << 20

// ClientConfig configures [NewClient]. Only URL is required.
type ClientConfig struct {
	// URL is the address of the server's methods, such as http://localhost:8080/api/v1. A user and a
	// password in it are sent as basic authentication.
	URL string
	// Token is sent as a bearer token. "": none.
	Token string
	// HTTP sends the requests. Default: a client that follows no redirects, so that the token stays
	// with the server.
	HTTP *http.Client
}

// ActorHeader is a header of requests: the name that inspect.WithActor has set, escaped as in a
// query. A client can send any name, so a server should prefer a name that it has checked.
const ActorHeader = "Swarmiji-Actor"

// Client is an [inspect.API] that asks a server. Its errors are those of the server. A server that
// cannot be reached is [inspect.ErrUnavailable]; a change may then have been made. It sends each
// request once. Safe for concurrent use.
type Client struct {
	base, token    string
	user, password string
	http           *http.Client
}

var _ inspect.API = (*Client)(nil)

// NewClient returns a client. It does not connect. Returns an error if the URL is invalid or has
// both a password and a token; the error does not show them.
func NewClient(c ClientConfig) (*Client, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("inspect: the URL of the server must be such as http://localhost:8080/api/v1")
	}
	password, given := u.User.Password()
	if given && c.Token != "" {
		return nil, errors.New("inspect: give a password in the URL or a token, not both")
	}
	client := &Client{token: c.Token, user: u.User.Username(), password: password, http: c.HTTP}
	u.User = nil
	client.base = strings.TrimSuffix(u.String(), "/") + "/"
	if client.http == nil {
		client.http = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return client, nil
}

// call calls a method of the server.
func call[R any](ctx context.Context, c *Client, method string, arg any) (R, error) {
	var answer R
	body, err := json.Marshal(arg)
	if err != nil {
		return answer, &inspect.Error{Code: inspect.CodeInvalid, Text: method + ": " + err.Error()}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+method, bytes.NewReader(body))
	if err != nil {
		return answer, &inspect.Error{Code: inspect.CodeInvalid, Text: method + ": the request cannot be made"}
	}
	r.Header.Set("Content-Type", "application/json")
	if who := inspect.ActorOf(ctx); who != "" {
		r.Header.Set(ActorHeader, url.QueryEscape(who))
	}
	switch {
	case c.token != "":
		r.Header.Set("Authorization", "Bearer "+c.token)
	case c.user != "":
		r.SetBasicAuth(c.user, c.password)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL
		}
		return answer, &inspect.Error{Code: inspect.CodeUnavailable, Text: fmt.Sprintf("%s: the server at %s gave no answer: %v", method, r.URL.Host, err)}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return answer, &inspect.Error{Code: inspect.CodeUnavailable, Text: fmt.Sprintf("%s: the answer of %s broke off", method, r.URL.Host)}
	case len(data) > maxAnswer:
		return answer, &inspect.Error{Code: inspect.CodeInternal, Text: method + ": the answer is too large", Help: "ask for smaller pages"}
	case resp.StatusCode != http.StatusOK:
		return answer, refusal(method, r.URL.Host, resp.StatusCode, data)
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		var zero R
		return zero, &inspect.Error{Code: inspect.CodeInternal, Text: fmt.Sprintf("%s: %s is no server of Swarmiji, or one of another version", method, r.URL.Host)}
	}
	return answer, nil
}

// refusal returns the error of an answer.
func refusal(method, host string, status int, data []byte) error {
	e := new(inspect.Error)
	if err := json.Unmarshal(data, e); err == nil && e.Code != "" && e.Text != "" {
		return e
	}
	code, help := inspect.CodeInternal, ""
	switch status {
	case http.StatusUnauthorized:
		code, help = inspect.CodeDenied, "give a valid token or password; the URL must end with the path of the API, such as /api/v1"
	case http.StatusForbidden, http.StatusMisdirectedRequest:
		code = inspect.CodeDenied
	case http.StatusNotFound:
		code, help = inspect.CodeNotFound, "the URL must end with the path of the API, such as /api/v1"
	case http.StatusTooManyRequests:
		code, help = inspect.CodeUnavailable, "a wrong token or password came from here before; wait some seconds, then try again"
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		code = inspect.CodeUnavailable
	}
	return &inspect.Error{Code: code, Text: fmt.Sprintf("%s: %s answered with status %d", method, host, status), Help: help}
}
