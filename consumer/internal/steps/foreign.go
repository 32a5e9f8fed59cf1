package steps

import "github.com/swarmiji/swarmiji/broker"

// CopyForeign copies to m the headers and properties of a received message that m does not set, for
// example a trace. It leaves out the expiration, which would end a delay too early, and the content
// encoding, since m is encoded again.
func CopyForeign(m, received *broker.Message) {
	for k, v := range received.Headers {
		if _, ours := m.Headers[k]; !ours {
			if m.Headers == nil {
				m.Headers = make(map[string]any, len(received.Headers))
			}
			m.Headers[k] = v
		}
	}
	for k, v := range received.Properties {
		if _, ours := m.Properties[k]; !ours && k != "expiration" && k != "content-encoding" {
			if m.Properties == nil {
				m.Properties = make(map[string]string, len(received.Properties))
			}
			m.Properties[k] = v
		}
	}
}
