package testserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// RabbitConfig configures a RabbitMQ node. The zero value is a plain node.
type RabbitConfig struct {
	Conf string    // further lines of rabbitmq.conf, such as "consumer_timeout = 2000"
	TLS  *TLSFiles // the node also listens with TLS on a second port; nil: it does not
	// RequireClientCert refuses TLS clients without a certificate of TLS's authority.
	RequireClientCert bool
}

// Rabbit is a private RabbitMQ node.
//
// Safe for concurrent use. Methods that start, stop, pause or resume the node run one at a time.
type Rabbit struct {
	node             // its name is the Erlang node name
	programs  string // directory of rabbitmq-server and rabbitmqctl
	box       *sandbox
	epmd      *process
	libraries string // directory of libraries without plugins
	ownsBox   bool   // false in a cluster, whose nodes share one sandbox
	home      string
	epmdPort  int
	distPort  int
	port      int
	tlsPort   int
	user      *url.Userinfo
}

// StartRabbit starts a node and waits until it accepts AMQP connections, some 2 seconds. The error
// wraps [ErrMissing] if RabbitMQ is not installed.
func StartRabbit(ctx context.Context, cfg RabbitConfig) (*Rabbit, error) {
	var err error
	for range 3 { // another process may have taken a port since this one found it free
		var nodes []*Rabbit
		if nodes, err = startRabbits(ctx, 1, cfg); err == nil {
			nodes[0].ownsBox = true
			return nodes[0], nil
		}
		if errors.Is(err, ErrMissing) || ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("rabbitmq: %w", err)
}

// startRabbits starts n nodes that share one cookie and one port mapper, and waits until they
// answer. More than one node form a cluster.
func startRabbits(ctx context.Context, n int, cfg RabbitConfig) (nodes []*Rabbit, err error) {
	programs, err := rabbitPrograms()
	if err != nil {
		return nil, err
	}
	box, err := newSandbox("swarmiji-rabbitmq-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, box.close())
		}
	}()
	if err := errors.Join(
		os.WriteFile(filepath.Join(box.dir, ".erlang.cookie"), []byte(rand.Text()), 0o400),
		os.WriteFile(filepath.Join(box.dir, ".erlang"), []byte(erlangRC), 0o400),
	); err != nil {
		return nil, err
	}
	libraries := filepath.Join(box.dir, "libraries")
	if err := linkLibraries(programs, libraries); err != nil {
		return nil, err
	}
	const each = 3
	ports, err := freePorts(1 + n*each)
	if err != nil {
		return nil, err
	}
	// The port mapper is private too: Erlang's default one outlives its nodes and is shared by the
	// whole machine.
	epmd, err := box.start("epmd", filepath.Join(box.dir, "epmd.log"), environment([]string{"ERL_"}, nil),
		"epmd", "-port", strconv.Itoa(ports[0]), "-address", "127.0.0.1")
	if err != nil {
		return nil, err
	}
	if err := epmd.await(ctx, func(ctx context.Context) error { return dialTCP(ctx, ports[0]) }); err != nil {
		return nil, fmt.Errorf("epmd: %w", err)
	}
	unique := strings.ToLower(rand.Text()[:10])
	password := "secret-" + rand.Text()
	for i := range n {
		p := ports[1+i*each:]
		r := &Rabbit{
			programs: programs, box: box, epmd: epmd, libraries: libraries, epmdPort: ports[0], port: p[0], distPort: p[1],
			home: filepath.Join(box.dir, "node"+strconv.Itoa(i)),
			user: url.UserPassword("swarmiji", password),
		}
		r.node = node{name: fmt.Sprintf("n%d-%s@localhost", i, unique), start: r.run, probe: r.answers}
		if cfg.TLS != nil {
			r.tlsPort = p[2]
		}
		nodes = append(nodes, r)
	}
	for _, r := range nodes {
		if err := r.configure(cfg, nodes); err != nil {
			return nil, err
		}
		if err := r.launch(); err != nil {
			return nil, err
		}
	}
	for _, r := range nodes {
		if err := r.ready(ctx); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// rabbitPrograms returns the directory of the server's own scripts. Debian's /usr/sbin holds
// wrappers that change the user and the environment, so this package cannot use them.
func rabbitPrograms() (string, error) {
	if !supported {
		return "", fmt.Errorf("%w: servers are started on Unix only", ErrMissing)
	}
	if _, err := exec.LookPath("epmd"); err != nil {
		return "", fmt.Errorf("%w: epmd (Debian: apt-get install rabbitmq-server): %w", ErrMissing, err)
	}
	dirs := []string{"/usr/lib/rabbitmq/bin"}
	if p, err := exec.LookPath("rabbitmq-server"); err == nil && filepath.Dir(p) != "/usr/sbin" {
		dirs = append(dirs, filepath.Dir(p))
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "rabbitmq-server")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%w: rabbitmq-server (Debian: apt-get install rabbitmq-server)", ErrMissing)
}

// linkLibraries makes a directory with links to RabbitMQ's libraries, and to none of its plugins. A
// node reads the configuration schemas of all plugins that it finds, also of unused ones. That is a
// fifth of the work of its start.
func linkLibraries(programs, dir string) error {
	script, err := filepath.EvalSymlinks(filepath.Join(programs, "rabbitmq-server"))
	if err != nil {
		return err
	}
	plugins := filepath.Join(filepath.Dir(filepath.Dir(script)), "plugins")
	entries, err := os.ReadDir(plugins)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); !strings.HasPrefix(name, "rabbitmq_") || strings.HasPrefix(name, "rabbitmq_prelaunch") {
			if err := os.Symlink(filepath.Join(plugins, name), filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// configure makes the node's directory and writes its configuration files.
func (r *Rabbit) configure(cfg RabbitConfig, all []*Rabbit) error {
	if err := os.Mkdir(r.home, 0o700); err != nil {
		return err
	}
	password, _ := r.user.Password()
	lines := []string{
		"listeners.tcp.1 = " + address(r.port),
		"default_user = " + r.user.Username(),
		"default_pass = " + password,
		"vm_memory_high_watermark.absolute = " + rabbitMemory,
		"disk_free_limit.absolute = 50MB",
		"log.file = false", // Log reads the console
		"log.console = true",
		"log.console.level = info",
		"cluster_partition_handling = pause_minority", // has no effect on a single node
	}
	if t := cfg.TLS; t != nil {
		lines = append(lines,
			"listeners.ssl.1 = "+address(r.tlsPort),
			"ssl_options.cacertfile = "+t.CA,
			"ssl_options.certfile = "+t.Cert,
			"ssl_options.keyfile = "+t.Key,
			"ssl_options.verify = verify_peer",
			"ssl_options.fail_if_no_peer_cert = "+strconv.FormatBool(cfg.RequireClientCert))
	}
	if len(all) > 1 { // the first start of the nodes makes the cluster
		lines = append(lines, "cluster_formation.peer_discovery_backend = classic_config")
		for i, other := range all {
			lines = append(lines, fmt.Sprintf("cluster_formation.classic_config.nodes.%d = %s", i+1, other.name))
		}
	}
	conf := strings.Join(lines, "\n") + "\n" + cfg.Conf + "\n"
	return errors.Join(
		os.WriteFile(filepath.Join(r.home, "rabbitmq.conf"), []byte(conf), 0o600),
		os.WriteFile(filepath.Join(r.home, "plugins"), []byte("[].\n"), 0o600))
}

// rabbitMemory is the memory above which a node raises its alarm. It is enough for the benchmark's
// 50,000 tasks.
const rabbitMemory = "2GB"

// env returns the environment of the node and of its tools.
func (r *Rabbit) env() []string {
	return environment([]string{"RABBITMQ_", "ERL_", "NOTIFY_SOCKET"}, map[string]string{
		"HOME":                 r.box.dir, // the directory of the cookie
		"RABBITMQ_NODENAME":    r.name,
		"RABBITMQ_MNESIA_BASE": filepath.Join(r.home, "mnesia"),
		"RABBITMQ_LOG_BASE":    filepath.Join(r.home, "log"),
		"RABBITMQ_PID_FILE":    filepath.Join(r.home, "pid"),
		"RABBITMQ_CONFIG_FILE": filepath.Join(r.home, "rabbitmq.conf"),
		"RABBITMQ_PLUGINS_DIR": r.libraries,
		// a missing file, so that the machine's own is not read
		"RABBITMQ_CONF_ENV_FILE":              filepath.Join(r.home, "none"),
		"RABBITMQ_ENABLED_PLUGINS_FILE":       filepath.Join(r.home, "plugins"),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": r.erlangArgs(),
		// any port, so that tools of several tests do not compete for eleven ports
		"RABBITMQ_CTL_DIST_PORT_MIN": "0",
		"RABBITMQ_CTL_DIST_PORT_MAX": "0",
		"ERL_EPMD_PORT":              strconv.Itoa(r.epmdPort),
		"ERL_EPMD_ADDRESS":           "127.0.0.1",
		// The start script becomes the server instead of waiting for it in a shell.
		"RUNNING_UNDER_SYSTEMD": "true",
	})
}

// erlangArgs returns the arguments of the Erlang runtime:
//
//   - Two schedulers that do not spin while idle, because servers and tests share few cores.
//   - The runtime begins with its node name. RabbitMQ would start another runtime first, only to
//     have a port mapper.
//   - A node of a cluster notices a paused node after seconds, not after a minute.
func (r *Rabbit) erlangArgs() string {
	return fmt.Sprintf("+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none -start_epmd false -sname %s "+
		"-kernel inet_dist_use_interface {127,0,0,1} inet_dist_listen_min %d inet_dist_listen_max %[2]d net_ticktime 10",
		r.name, r.distPort)
}

// run starts the node's process. It does not wait until the node answers.
func (r *Rabbit) run() (*process, error) {
	return r.box.start(filepath.Base(r.home), filepath.Join(r.home, "console.log"), r.env(),
		filepath.Join(r.programs, "rabbitmq-server"))
}

// answers returns nil if an AMQP handshake with the node succeeds.
func (r *Rabbit) answers(ctx context.Context) error {
	const patience = 5 * time.Second
	conn, err := amqp.DialConfig(r.URL(), amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		d := net.Dialer{Timeout: patience}
		c, err := d.DialContext(ctx, network, addr)
		if err == nil { // the client clears the deadline after the handshake
			err = c.SetDeadline(time.Now().Add(patience))
		}
		return c, err
	}})
	if err != nil {
		return err
	}
	return conn.Close()
}

// dialTCP returns nil if a process listens on the port of this machine.
func dialTCP(ctx context.Context, port int) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address(port))
	if err != nil {
		return err
	}
	return c.Close()
}

// URL returns the address of the default vhost, with user and password:
// amqp://user:password@127.0.0.1:port/.
func (r *Rabbit) URL() string { return r.URLFor("/") }

// URLFor returns the address of a vhost.
func (r *Rabbit) URLFor(vhost string) string { return r.url("amqp", r.port, vhost) }

// TLSURL returns the address of the default vhost through TLS, or "" if the node was started
// without TLS.
func (r *Rabbit) TLSURL() string {
	if r.tlsPort == 0 {
		return ""
	}
	return r.url("amqps", r.tlsPort, "/")
}

// url returns the address of a vhost at the port with this scheme, user and password.
func (r *Rabbit) url(scheme string, port int, vhost string) string {
	u := url.URL{Scheme: scheme, User: r.user, Host: address(port), Path: "/"}
	if vhost != "/" {
		u.Path, u.RawPath = "/"+vhost, "/"+url.PathEscape(vhost)
	}
	return u.String()
}

// Addr returns host:port of the AMQP listener, for a [Proxy].
func (r *Rabbit) Addr() string { return address(r.port) }

// TLSAddr returns host:port of the TLS listener.
func (r *Rabbit) TLSAddr() string { return address(r.tlsPort) }

// Node returns the node's name within its cluster.
func (r *Rabbit) Node() string { return r.name }

// Password returns the password in [Rabbit.URL]. Tests search texts that must not contain it. The
// password is random, so no text of RabbitMQ or of the module contains it by chance.
func (r *Rabbit) Password() string {
	p, _ := r.user.Password()
	return p
}

// Close kills the node and removes its data. It is idempotent. On a node of a cluster it does
// nothing: close the cluster.
func (r *Rabbit) Close() error {
	if !r.ownsBox {
		return nil
	}
	r.Kill()
	r.epmd.kill()
	return r.box.close()
}

// Ctl runs rabbitmqctl and returns its output. That takes more than a second of a processor: use
// [Rabbit.Eval] in tests that do it often.
func (r *Rabbit) Ctl(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(r.programs, "rabbitmqctl"), append([]string{"--silent"}, args...)...)
	cmd.Env = r.env()
	cmd.Dir = r.box.dir
	cmd.WaitDelay = time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("rabbitmqctl %s: %w: %s%s", args[0], err, out, stderr.String())
	}
	return out, nil
}

// Eval runs Erlang expressions, separated by commas, on the node and returns their output. An
// expression that fails is an error.
func (r *Rabbit) Eval(ctx context.Context, exprs string) (string, error) {
	cmd := exec.CommandContext(ctx, "erl_call", "-sname", r.name, "-timeout", "240", "-fetch_stdout", "-e")
	cmd.Env, cmd.Dir = r.env(), r.box.dir // which has the cookie
	cmd.Stdin = strings.NewReader(exprs + ", ok.\n")
	cmd.WaitDelay = time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	printed, ok := strings.CutSuffix(strings.TrimSpace(string(out)), "{ok, ok}") // the result is last
	if err == nil && !ok {
		err = errors.New("it failed")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", exprs, err, out, stderr.String())
	}
	return printed, nil
}

// Messages returns the numbers of messages, ready and unacknowledged, in the queues of the default
// vhost.
func (r *Rabbit) Messages(ctx context.Context) (map[string]int, error) {
	out, err := r.Eval(ctx, `[io:format("~s ~w~n", [N, M]) || Q <- rabbit_amqqueue:list(<<"/">>),
		[{name, {resource, _, queue, N}}, {messages, M}] <- [rabbit_amqqueue:info(Q, [name, messages])]]`)
	if err != nil {
		return nil, err
	}
	queues := make(map[string]int)
	for line := range strings.Lines(out) {
		var name string
		var n int
		if _, err := fmt.Sscan(line, &name, &n); err != nil {
			return nil, fmt.Errorf("queues of %s: %q: %w", r.name, line, err)
		}
		queues[name] = n
	}
	return queues, nil
}

// DeleteQueue deletes a queue of the default vhost, as an administrator would.
func (r *Rabbit) DeleteQueue(name string) error {
	conn, err := amqp.Dial(r.URL())
	if err != nil {
		return err
	}
	ch, err := conn.Channel()
	if err == nil {
		_, err = ch.QueueDelete(name, false, false, false)
	}
	return errors.Join(err, conn.Close())
}

// CloseAllConnections makes the node close every client's connection, with the reply code of an
// operator's request.
func (r *Rabbit) CloseAllConnections(ctx context.Context) error {
	_, err := r.Eval(ctx, `[rabbit_networking:close_connection(C, "closed by a test") || C <- rabbit_networking:connections()]`)
	return err
}

// SetMemoryAlarm raises the node's memory alarm, or clears it. The alarm blocks connections that
// publish.
func (r *Rabbit) SetMemoryAlarm(ctx context.Context, on bool) error {
	limit := fmt.Sprintf("{absolute, %q}", rabbitMemory)
	if on {
		limit = "0.0000001"
	}
	_, err := r.Eval(ctx, "vm_memory_monitor:set_vm_memory_high_watermark("+limit+")")
	return err
}

// SetDiskAlarm raises the node's disk alarm, or clears it. The alarm blocks connections that
// publish.
func (r *Rabbit) SetDiskAlarm(ctx context.Context, on bool) error {
	limit := "50MB"
	if on {
		limit = "1000000000000000" // bytes: a petabyte
	}
	_, err := r.Eval(ctx, fmt.Sprintf("rabbit_disk_monitor:set_disk_free_limit(%q)", limit))
	return err
}
