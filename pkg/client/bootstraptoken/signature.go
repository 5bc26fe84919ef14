package bootstraptoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
)

// The ConfigMap kube-public/cluster-info holds, for each token with the signing
// usage, a detached JSON Web Signature (HS256) of its kubeconfig. It is implemented
// here because JOSE libraries refuse keys as short as a token's secret.
const (
	InfoName        = "cluster-info"
	InfoKey         = "kubeconfig"
	SignaturePrefix = "jws-kubeconfig-" // followed by the token's id
)

type signatureHeader struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
}

// Sign returns the detached JSON Web Signature of text by the token.
func (t Token) Sign(text []byte) string {
	head, err := json.Marshal(signatureHeader{"HS256", t.ID})
	if err != nil {
		panic(err) // two strings always have a JSON form
	}
	protected := base64.RawURLEncoding.EncodeToString(head)
	return protected + ".." + base64.RawURLEncoding.EncodeToString(t.mac(protected, text))
}

// Verify reports whether signature is the token's signature of text.
func (t Token) Verify(signature string, text []byte) bool {
	protected, rest, ok := strings.Cut(signature, ".")
	tag, detached := strings.CutPrefix(rest, ".")
	if !ok || !detached {
		return false
	}
	head, errHead := base64.RawURLEncoding.DecodeString(protected)
	sum, errSum := base64.RawURLEncoding.DecodeString(tag)
	var h signatureHeader
	if errHead != nil || errSum != nil || json.Unmarshal(head, &h) != nil || h.Algorithm != "HS256" || h.KeyID != t.ID {
		return false
	}
	return hmac.Equal(sum, t.mac(protected, text))
}

func (t Token) mac(protected string, text []byte) []byte {
	h := hmac.New(sha256.New, []byte(t.Secret))
	h.Write([]byte(protected + "." + base64.RawURLEncoding.EncodeToString(text)))
	return h.Sum(nil)
}
