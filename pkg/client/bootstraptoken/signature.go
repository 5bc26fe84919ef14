package bootstraptoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
)

// The ConfigMap kube-public/cluster-info has, for each token that may sign, a
// JSON Web Signature (HS256) of its kubeconfig, without the text it signs.
// Libraries refuse keys as short as a token's secret, so it is spelled out.
const (
	InfoName        = "cluster-info"
	InfoKey         = "kubeconfig"
	SignaturePrefix = "jws-kubeconfig-" // and the token's id
)

type signatureHeader struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
}

// Sign is the token's signature of a text.
func (t Token) Sign(text []byte) string {
	head, err := json.Marshal(signatureHeader{"HS256", t.ID})
	if err != nil {
		panic(err) // two strings always have a JSON form
	}
	protected := base64.RawURLEncoding.EncodeToString(head)
	return protected + ".." + base64.RawURLEncoding.EncodeToString(t.mac(protected, text))
}

// Verify says whether a signature of the text is this token's.
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
