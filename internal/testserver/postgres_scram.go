package testserver

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// scramVerifier returns what PostgreSQL stores of a password for SCRAM-SHA-256: the number of
// iterations, the salt, StoredKey and ServerKey of RFC 5802. PostgreSQL and PgBouncer accept it in
// place of the password.
//
// It has one iteration. With PostgreSQL's 4096 a client with the race detector computes for 40 ms
// on each of its connections, and a suite makes thousands.
func scramVerifier(password string) (string, error) {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // it never returns an error
	const iterations = 1
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("hash the password: %w", err)
	}
	stored := sha256.Sum256(keyed(salted, "Client Key"))
	text := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, text(salt), text(stored[:]), text(keyed(salted, "Server Key"))), nil
}

// keyed returns the HMAC-SHA-256 of a text.
func keyed(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
