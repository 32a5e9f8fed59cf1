package open

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// tlsConfig makes the configuration of an amqps URL; nil means the system's authorities.
func tlsConfig(given map[string]string, option *tls.Config) (*tls.Config, error) {
	ca, cert, key, name := given[paramCA], given[paramCert], given[paramKey], given[paramServerName]
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
		pem, err := os.ReadFile(ca) //nolint:gosec // who gives the URL names the file
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
