package params

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/swarmiji/swarmiji/open"
)

// TLS returns the TLS configuration for a URL: a copy of that of the options, or one from the
// parameters ca, cert, key and server_name, with TLS 1.2 as minimum. It reads the named files. nil
// means the defaults and the system's certificate authorities.
//
// Returns an error if both sources are used, or a file is missing or invalid. The same holds if
// only one of cert and key is given, or verification is switched off.
func TLS(t *open.Target) (*tls.Config, error) {
	ca, cert, key, name := t.Params["ca"], t.Params["cert"], t.Params["key"], t.Params["server_name"]
	option, err := Given(t)
	if err != nil {
		return nil, err
	}
	if option != nil {
		if ca != "" || cert != "" || key != "" || name != "" {
			return nil, errors.New("TLS is set up in the URL and in the options; use one of them")
		}
		if option.InsecureSkipVerify {
			return nil, errors.New("the options skip the verification of certificates, which is refused; trust the server's authority with RootCAs")
		}
		return option.Clone(), nil
	}
	if ca == "" && cert == "" && key == "" && name == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if ca != "" {
		pem, err := os.ReadFile(ca) //nolint:gosec // the URL names the file
		if err != nil {
			return nil, fmt.Errorf("parameter ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("parameter ca: %s holds no certificate in PEM form", ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, errors.New("parameters cert and key belong together; give both or neither")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("parameters cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Given returns the TLS configuration of the options, or nil if the options have no TLS. Returns an
// error if it is not a *tls.Config.
func Given(t *open.Target) (*tls.Config, error) {
	if t.TLS == nil {
		return nil, nil
	}
	c, ok := t.TLS.(*tls.Config)
	if !ok {
		return nil, fmt.Errorf("the options' TLS is a %T; give a *tls.Config", t.TLS)
	}
	return c, nil
}
