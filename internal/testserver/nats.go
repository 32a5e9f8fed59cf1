package testserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// NATSConfig configures a NATS server. The zero value: JetStream on disk, messages of up to 8 MiB.
type NATSConfig struct {
	// Conf holds further lines of the server's configuration, such as "max_payload: 1MB". They come
	// last: a setting of the outermost level that is given again replaces the first.
	Conf string
	// TLS makes clients use TLS. nil: clients cannot use TLS. A NATS server has one port for both.
	TLS *TLSFiles
	// RequireClientCert refuses TLS clients without a certificate of TLS's authority.
	RequireClientCert bool
}

// NATS is a private NATS server with JetStream.
//
// Safe for concurrent use. Methods that start, stop, pause or resume the server run one at a time.
type NATS struct {
	node
	program   string
	box       *sandbox
	home      string
	ownsBox   bool // false in a cluster, whose servers share one sandbox
	port      int
	httpPort  int
	routePort int
	tlsConfig *TLSFiles
	password  string
}

const (
	natsUser  = "swarmiji"
	natsAdmin = "admin" // a user of the system account, with the same password
)

// StartNATS starts a server and waits until it answers and JetStream has loaded its data. That
// takes a few milliseconds; the first start on a machine takes longer, see [NATSProgram]. The error
// wraps [ErrMissing] if the server cannot be built on this machine.
func StartNATS(ctx context.Context, cfg NATSConfig) (*NATS, error) {
	var err error
	for range 3 { // another process may have taken a port since this one found it free
		var nodes []*NATS
		if nodes, err = startNATS(ctx, 1, cfg); err == nil {
			nodes[0].ownsBox = true
			return nodes[0], nil
		}
		if errors.Is(err, ErrMissing) || ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("nats: %w", err)
}

// startNATS starts n servers and waits until they answer. More than one server form a cluster.
func startNATS(ctx context.Context, n int, cfg NATSConfig) (nodes []*NATS, err error) {
	program, err := NATSProgram(ctx)
	if err != nil {
		return nil, err
	}
	box, err := newSandbox("swarmiji-nats-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, box.close())
		}
	}()
	const each = 3
	ports, err := freePorts(n * each)
	if err != nil {
		return nil, err
	}
	password := "secret-" + rand.Text()
	for i := range n {
		s := &NATS{
			program: program, box: box, home: filepath.Join(box.dir, "node"+strconv.Itoa(i)), password: password,
			port: ports[i*each], httpPort: ports[i*each+1], routePort: ports[i*each+2], tlsConfig: cfg.TLS,
		}
		s.node = node{name: "n" + strconv.Itoa(i), start: s.run, probe: s.answers}
		nodes = append(nodes, s)
	}
	for _, s := range nodes {
		if err := s.configure(cfg, nodes); err != nil {
			return nil, err
		}
		if err := s.launch(); err != nil {
			return nil, err
		}
	}
	for _, s := range nodes {
		if err := s.ready(ctx); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// configure makes the server's directory and writes its configuration file.
func (s *NATS) configure(cfg NATSConfig, all []*NATS) error {
	if err := os.Mkdir(s.home, 0o700); err != nil {
		return err
	}
	lines := []string{
		"server_name: " + s.name,
		"listen: " + strconv.Quote(address(s.port)),
		"http: " + strconv.Quote(address(s.httpPort)),
		"max_payload: 8MB",
		"jetstream { store_dir: " + strconv.Quote(s.home) + ", max_memory_store: 1GB, max_file_store: 20GB }",
		"system_account: SYS",
		"accounts {",
		"  TASKS { jetstream: enabled, users: [ { user: " + natsUser + ", password: " + strconv.Quote(s.password) + " } ] }",
		"  SYS { users: [ { user: " + natsAdmin + ", password: " + strconv.Quote(s.password) + " } ] }",
		"}",
	}
	if t := cfg.TLS; t != nil {
		lines = append(lines, fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: %t }",
			t.Cert, t.Key, t.CA, cfg.RequireClientCert))
	}
	if len(all) > 1 {
		routes := make([]string, len(all))
		for i, other := range all {
			routes[i] = strconv.Quote("nats://" + address(other.routePort))
		}
		lines = append(lines, fmt.Sprintf("cluster { name: tests, listen: %q, routes: [ %s ] }",
			address(s.routePort), strings.Join(routes, ", ")))
	}
	conf := strings.Join(lines, "\n") + "\n" + cfg.Conf + "\n"
	return os.WriteFile(filepath.Join(s.home, "nats.conf"), []byte(conf), 0o600)
}

// run starts the server's process. It does not wait until the server answers.
func (s *NATS) run() (*process, error) {
	// Two processors, because servers and tests share few.
	env := environment([]string{"NATS_"}, map[string]string{"GOMAXPROCS": "2"})
	return s.box.start(filepath.Base(s.home), filepath.Join(s.home, "console.log"), env,
		s.program, "-c", filepath.Join(s.home, "nats.conf"))
}

// answers returns nil if the server accepts clients and its JetStream works. In a cluster JetStream
// works only with a leader.
func (s *NATS) answers(ctx context.Context) error {
	if _, err := s.monitor(ctx, "/healthz"); err != nil {
		return err
	}
	conn, err := s.connect(natsUser)
	if err != nil {
		return err
	}
	conn.Close()
	return nil
}

// monitor requests a path of the server's monitoring port and returns the body of the response.
func (s *NATS) monitor(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address(s.httpPort)+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	// A separate connection leaves no goroutine behind.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", path, res.Status, body)
	}
	return body, nil
}

// ask requests a path of the monitoring port and decodes the JSON response into the last argument.
func (s *NATS) ask(ctx context.Context, path string, into any) error {
	body, err := s.monitor(ctx, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// connect opens a connection for this package's own requests. The connection does not reconnect.
func (s *NATS) connect(user string) (*nats.Conn, error) {
	o := nats.GetDefaultOptions()
	o.Servers = []string{"nats://" + s.Addr()}
	o.User, o.Password = user, s.password
	o.AllowReconnect, o.Timeout = false, 5*time.Second
	if s.tlsConfig != nil {
		cfg, err := s.tlsConfig.ClientConfig(true)
		if err != nil {
			return nil, err
		}
		o.Secure, o.TLSConfig = true, cfg
	}
	return o.Connect()
}

// URL returns the server's address with user and password: nats://user:password@127.0.0.1:port.
// With NATSConfig.TLS a client must use TLS with it.
func (s *NATS) URL() string { return s.url("nats") }

// TLSURL returns the same address with the scheme tls, or "" if the server was started without TLS.
func (s *NATS) TLSURL() string {
	if s.tlsConfig == nil {
		return ""
	}
	return s.url("tls")
}

// url returns the server's address with this scheme, user and password.
func (s *NATS) url(scheme string) string {
	u := url.URL{Scheme: scheme, User: url.UserPassword(natsUser, s.password), Host: s.Addr()}
	return u.String()
}

// Addr returns host:port of the clients' listener, for a [Proxy] or a [Relay].
func (s *NATS) Addr() string { return address(s.port) }

// User returns the user in [NATS.URL].
func (s *NATS) User() string { return natsUser }

// Password returns the password in [NATS.URL]. Tests search texts that must not contain it. The
// password is random, so no text of NATS or of the module contains it by chance.
func (s *NATS) Password() string { return s.password }

// Name returns the server's name within its cluster.
func (s *NATS) Name() string { return s.name }

// CloseAllConnections makes the server close the connection of every client.
func (s *NATS) CloseAllConnections(ctx context.Context) error {
	var connz struct {
		Server      string `json:"server_id"`
		Connections []struct {
			CID uint64
		}
	}
	if err := s.ask(ctx, "/connz?limit=10000", &connz); err != nil {
		return err
	}
	admin, err := s.connect(natsAdmin)
	if err != nil {
		return err
	}
	defer admin.Close()
	for _, c := range connz.Connections {
		// A connection that has ended meanwhile is answered with an error, which is ignored.
		_, err := admin.RequestWithContext(ctx, "$SYS.REQ.SERVER."+connz.Server+".KICK", fmt.Appendf(nil, `{"cid":%d}`, c.CID))
		if err != nil {
			return fmt.Errorf("kick: %w", err)
		}
	}
	return nil
}

// Close kills the server and removes its data. It is idempotent. On a server of a cluster it does
// nothing: close the cluster.
func (s *NATS) Close() error {
	if !s.ownsBox {
		return nil
	}
	s.Kill()
	return s.box.close()
}
