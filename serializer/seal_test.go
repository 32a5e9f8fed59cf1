package serializer

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// secretOf returns a secret that is the same in every run.
func secretOf(name string) []byte {
	sum := sha256.Sum256([]byte("test secret " + name))
	return sum[:]
}

func encryptKey(id string) Key { return Key{ID: id, Secret: secretOf(id)} }
func signKey(id string) Key    { return Key{ID: id, Secret: secretOf(id), SignOnly: true} }

func ring(t testing.TB, active Key, opening ...Key) *KeyRing {
	t.Helper()
	r, err := NewKeyRing(active, opening...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sealed(t testing.TB, r *KeyRing, plain, bound string) []byte {
	t.Helper()
	s, err := r.Seal([]byte(plain), []byte(bound))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func bothKinds(t *testing.T, f func(t *testing.T, key Key)) {
	t.Run("encrypt", func(t *testing.T) { f(t, encryptKey("k1")) })
	t.Run("sign", func(t *testing.T) { f(t, signKey("k1")) })
}

func TestSealRoundTrip(t *testing.T) {
	bothKinds(t, func(t *testing.T, key Key) {
		r := ring(t, key)
		rapid.Check(t, func(t *rapid.T) {
			plain := rapid.SliceOf(rapid.Byte()).Draw(t, "plain")
			bound := rapid.SliceOf(rapid.Byte()).Draw(t, "bound")
			s, err := r.Seal(plain, bound)
			if err != nil {
				t.Fatal(err)
			}
			kept := bytes.Clone(s)
			got, err := r.Open(s, bound)
			if err != nil || !bytes.Equal(got, plain) {
				t.Fatalf("opened %q, %v; want %q", got, err, plain)
			}
			if !bytes.Equal(s, kept) {
				t.Fatal("Open changed what it was given")
			}
			if _, err := r.Open(s, append(bytes.Clone(bound), 0)); !errors.Is(err, ErrForged) {
				t.Fatalf("bound to something else: %v", err)
			}
		})
	})
}

// TestSealedFormat checks KeyRing against an independent implementation of the documented format.
func TestSealedFormat(t *testing.T) {
	const plain, bound = "arguments", "bound"
	head := append([]byte{1, 1, 2}, "k1"...)
	s := sealed(t, ring(t, encryptKey("k1")), plain, bound)
	if !bytes.HasPrefix(s, head) || len(s) != len(head)+12+len(plain)+16 {
		t.Fatalf("sealed as %x", s)
	}
	block, err := aes.NewCipher(secretOf("k1"))
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	got, err := gcm.Open(nil, s[5:17], s[17:], append(bytes.Clone(head), bound...))
	if err != nil || string(got) != plain {
		t.Errorf("opened by hand: %q, %v", got, err)
	}
	if bytes.Contains(s, []byte(plain)) {
		t.Error("the arguments can be read")
	}

	head[1] = 2
	mac := hmac.New(sha256.New, secretOf("k1"))
	mac.Write(head)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(bound))))
	mac.Write([]byte(bound + plain))
	want := mac.Sum(append(bytes.Clone(head), plain...))
	if s := sealed(t, ring(t, signKey("k1")), plain, bound); !bytes.Equal(s, want) {
		t.Errorf("signed as\n%x, want\n%x", s, want)
	}
}

func TestGoldenSealed(t *testing.T) {
	const plain = "what was sealed by the first version"
	bound := Binding("task", "id-1", "email.send", "q", ContentMsgpack)
	for name, key := range map[string]Key{"encrypted": encryptKey("2024-05"), "signed": signKey("2024-06")} {
		r := ring(t, key)
		text := golden(t, "sealed-v1-"+name+".hex", []byte(hex.EncodeToString(sealed(t, r, plain, string(bound)))))
		old, err := hex.DecodeString(string(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Open(old, bound)
		if err != nil || string(got) != plain {
			t.Errorf("%s: opened as %q, %v", name, got, err)
		}
		if key.SignOnly && !bytes.Equal(old, sealed(t, r, plain, string(bound))) {
			t.Errorf("%s: signed otherwise now", name)
		}
	}
}

func TestSealFlippedBits(t *testing.T) {
	bothKinds(t, func(t *testing.T, key Key) {
		r := ring(t, key, encryptKey("other"), signKey("another"))
		s := sealed(t, r, "some arguments", "bound")
		for at := range s {
			for bit := range 8 {
				s[at] ^= 1 << bit
				got, err := r.Open(s, []byte("bound"))
				if err == nil || got != nil {
					t.Fatalf("bit %d of byte %d flipped: opened as %q", bit, at, got)
				}
				if !errors.Is(err, ErrForged) && !errors.Is(err, ErrUnknownKey) && !errors.Is(err, ErrMalformed) {
					t.Fatalf("bit %d of byte %d flipped: %v is of no class", bit, at, err)
				}
				s[at] ^= 1 << bit
			}
		}
		for n := range s {
			if got, err := r.Open(s[:n], []byte("bound")); err == nil {
				t.Fatalf("cut to %d bytes: opened as %q", n, got)
			}
		}
		if got, err := r.Open(append(bytes.Clone(s), 0), []byte("bound")); !errors.Is(err, ErrForged) {
			t.Fatalf("a byte more: %q, %v", got, err)
		}
	})
}

func TestSealRefuses(t *testing.T) {
	s := sealed(t, ring(t, encryptKey("k1")), "x", "b")
	with := func(at int, v byte) []byte {
		c := bytes.Clone(s)
		c[at] = v
		return c
	}
	signer := ring(t, signKey("k1"))
	for name, c := range map[string]struct {
		ring *KeyRing
		s    []byte
		want error
	}{
		"an unknown key":                {ring(t, encryptKey("k2")), s, ErrUnknownKey},
		"another secret of that name":   {ring(t, Key{ID: "k1", Secret: secretOf("k2")}), s, ErrForged},
		"a key for another algorithm":   {signer, s, ErrForged},
		"version 0":                     {signer, with(0, 0), ErrMalformed},
		"version 2":                     {signer, with(0, 2), ErrMalformed},
		"algorithm 0":                   {ring(t, encryptKey("k1")), with(1, 0), ErrForged},
		"algorithm 255":                 {ring(t, encryptKey("k1")), with(1, 255), ErrForged},
		"a key id longer than the rest": {signer, with(2, 255), ErrMalformed},
		"no bytes":                      {signer, nil, ErrMalformed},
		"a key without a name":          {signer, []byte{1, 1, 0}, ErrUnknownKey},
	} {
		if got, err := c.ring.Open(c.s, []byte("b")); !errors.Is(err, c.want) {
			t.Errorf("%s: %q, %v; want %v", name, got, err, c.want)
		}
	}
}

func TestKeyRotation(t *testing.T) {
	before := ring(t, encryptKey("old"))
	both := ring(t, encryptKey("old"), signKey("new"))     // 1. add the new key to all processes
	switched := ring(t, signKey("new"), encryptKey("old")) // 2. seal with it
	after := ring(t, signKey("new"))                       // 3. remove the old key
	a, b := sealed(t, before, "a", ""), sealed(t, switched, "b", "")
	for _, r := range []*KeyRing{both, switched} {
		for s, want := range map[string]string{string(a): "a", string(b): "b"} {
			if got, err := r.Open([]byte(s), nil); err != nil || string(got) != want {
				t.Errorf("%v: %q, %v; want %q", r, got, err, want)
			}
		}
	}
	if _, err := before.Open(b, nil); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("before the rotation: %v", err)
	}
	if _, err := after.Open(a, nil); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("after the rotation: %v", err)
	}
	if got := switched.Active(); got != "new" {
		t.Errorf("active is %q", got)
	}
}

func TestNoncesDiffer(t *testing.T) {
	r := ring(t, encryptKey("k"))
	seen := make(map[string]bool)
	for range 10_000 {
		nonce := string(sealed(t, r, "", "")[4:16])
		if seen[nonce] {
			t.Fatalf("nonce %x came twice", nonce)
		}
		seen[nonce] = true
	}
}

func TestNewKeyRingRefuses(t *testing.T) {
	for name, keys := range map[string][]Key{
		"no id":          {{Secret: secretOf("")}},
		"a bad id":       {encryptKey("a b")},
		"a long id":      {encryptKey(strings.Repeat("k", 65))},
		"a short secret": {{ID: "k", Secret: make([]byte, 16)}},
		"a long secret":  {{ID: "k", Secret: make([]byte, 64)}},
		"a short HMAC":   {{ID: "k", Secret: make([]byte, 31), SignOnly: true}},
		"a name twice":   {encryptKey("k"), signKey("k")},
	} {
		if r, err := NewKeyRing(keys[0], keys[1:]...); err == nil || r != nil {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	_, err := NewKeyRing(Key{}, Key{ID: "two"})
	if err == nil || strings.Count(err.Error(), "serializer: key") != 2 {
		t.Errorf("not all problems are told: %v", err)
	}
}

// TestKeysAreNotPrinted shows that no way of printing a key shows its secret.
func TestKeysAreNotPrinted(t *testing.T) {
	key := Key{ID: "k1", Secret: []byte("0123456789abcdefghijklmnopqrstuv"), SignOnly: true}
	r := ring(t, key)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
		for _, v := range []any{key, &key, r, []Key{key}, struct{ K Key }{key}} {
			text := fmt.Sprintf(verb, v)
			for _, secret := range []string{"0123456789ab", "303132", "48 49 50", "0x30, 0x31"} {
				if strings.Contains(text, secret) {
					t.Errorf("%s of %T is %s", verb, v, text)
				}
			}
		}
	}
	text, err := json.Marshal(map[string]any{"key": key, "ring": r})
	if err != nil || string(text) != `{"key":"key k1","ring":{}}` {
		t.Errorf("as JSON: %s, %v", text, err)
	}
}

func TestBindingIsOneToOne(t *testing.T) {
	lists := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "ab", "\x00", "\x00\x00\x00\x01a"}), 1, 4)
	rapid.Check(t, func(t *rapid.T) {
		a, b := lists.Draw(t, "a"), lists.Draw(t, "b")
		same := fmt.Sprintf("%q", a) == fmt.Sprintf("%q", b)
		if got := bytes.Equal(Binding(a[0], a[1:]...), Binding(b[0], b[1:]...)); got != same {
			t.Fatalf("bindings of %q and %q are the same: %v", a, b, got)
		}
	})
}

func FuzzOpenSealed(f *testing.F) {
	encrypting, signing := ring(f, encryptKey("k1"), signKey("k2")), ring(f, signKey("k2"), encryptKey("k1"))
	for _, r := range []*KeyRing{encrypting, signing} {
		f.Add(sealed(f, r, "arguments", "bound"), []byte("bound"))
	}
	f.Add([]byte{1, 1, 2, 'k', '1'}, []byte{})
	f.Add([]byte{1, 2, 255}, []byte{})
	f.Fuzz(func(t *testing.T, s, bound []byte) {
		plain, err := encrypting.Open(s, bound)
		if err != nil {
			if plain != nil || !errors.Is(err, ErrForged) && !errors.Is(err, ErrUnknownKey) && !errors.Is(err, ErrMalformed) {
				t.Fatalf("%q, %v", plain, err)
			}
			return
		}
		if len(plain) >= len(s) {
			t.Fatalf("%d bytes out of %d", len(plain), len(s))
		}
		if s[1] == sealHMAC { // without a nonce the signature is always the same
			if again := sealed(t, signing, string(plain), string(bound)); !bytes.Equal(again, s) {
				t.Fatalf("sealed again as %x, was %x", again, s)
			}
		}
	})
}
