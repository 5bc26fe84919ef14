package security

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"hash"
	"maps"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/certfile"
)

// claims is the JSON of a token's header or payload.
type claims map[string]any

// with returns a copy with some values replaced: names and values alternately. A nil value
// removes the claim.
func (c claims) with(changes ...any) claims {
	out := maps.Clone(c)
	for i := 0; i+1 < len(changes); i += 2 {
		name := changes[i].(string)
		if out[name] = changes[i+1]; changes[i+1] == nil {
			delete(out, name)
		}
	}
	return out
}

func (c claims) encode(t *testing.T) string {
	t.Helper()
	data, err := json.Marshal(c)
	check(t, err)
	return base64.RawURLEncoding.EncodeToString(data)
}

func decodeClaims(t *testing.T, part string) claims {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(part)
	check(t, err)
	var c claims
	check(t, json.Unmarshal(data, &c))
	return c
}

// forge builds a token from its parts. sign is called with the signing input.
func forge(t *testing.T, header, payload claims, sign func(input string) []byte) string {
	t.Helper()
	input := header.encode(t) + "." + payload.encode(t)
	return input + "." + base64.RawURLEncoding.EncodeToString(sign(input))
}

// es256 signs with an elliptic curve key, as the cluster does.
func es256(t *testing.T, key *ecdsa.PrivateKey) func(string) []byte {
	t.Helper()
	return func(input string) []byte {
		digest := sha256.Sum256([]byte(input))
		r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
		check(t, err)
		return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	}
}

// mac signs with a public value as if it were a shared secret.
func mac(hash func() hash.Hash, secret []byte) func(string) []byte {
	return func(input string) []byte {
		h := hmac.New(hash, secret)
		h.Write([]byte(input))
		return h.Sum(nil)
	}
}

func signature(data []byte) func(string) []byte { return func(string) []byte { return data } }

func privateKey(t *testing.T, file string) *ecdsa.PrivateKey {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(pkiDir, file))
	check(t, err)
	key, err := certfile.ParsePrivateKey(data)
	check(t, err)
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("%s holds a %T: this test signs with elliptic curves only", file, key)
	}
	return ec
}

// forgedTokens returns tokens without a valid signature of the cluster's key.
func forgedTokens(t *testing.T, good string) map[string]string {
	t.Helper()
	parts := strings.Split(good, ".")
	header, payload := decodeClaims(t, parts[0]), decodeClaims(t, parts[1])
	admin := payload.with("sub", "system:serviceaccount:kube-system:generic-garbage-collector")
	pub, err := os.ReadFile(filepath.Join(pkiDir, "sa.pub"))
	check(t, err)
	block, _ := pem.Decode(pub)
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	n := elliptic.P256().Params().N.FillBytes(make([]byte, 32))
	one := big.NewInt(1).FillBytes(make([]byte, 32))
	jwk := claims{
		"kty": "EC", "crv": "P-256", "kid": header["kid"],
		"x": base64.RawURLEncoding.EncodeToString(own.X.FillBytes(make([]byte, 32))),
		"y": base64.RawURLEncoding.EncodeToString(own.Y.FillBytes(make([]byte, 32))),
	}
	input := parts[0] + "." + parts[1]
	forged := map[string]string{
		"payload of another account":        forge(t, header, admin, signature(decoded(t, parts[2]))),
		"later expiry":                      forge(t, header, payload.with("exp", time.Now().Add(1e6*time.Hour).Unix()), signature(decoded(t, parts[2]))),
		"no signature":                      input + ".",
		"two parts":                         input,
		"four parts":                        good + "." + parts[2],
		"half":                              good[:len(good)/2],
		"signature cut":                     good[:len(good)-4],
		"signature padded":                  good + "AAAA",
		"signature of zeros":                forge(t, header, payload, signature(make([]byte, 64))),
		"signature of the curve's order":    forge(t, header, payload, signature(append(n, n...))),
		"signature of one and order":        forge(t, header, payload, signature(append(one, n...))),
		"signature in DER":                  forge(t, header, payload, derSignature(t, privateKey(t, "sa.key"))),
		"HS256 with the public key's PEM":   forge(t, header.with("alg", "HS256"), payload, mac(sha256.New, pub)),
		"HS256 with the PEM, trimmed":       forge(t, header.with("alg", "HS256"), payload, mac(sha256.New, []byte(strings.TrimSpace(string(pub))))),
		"HS256 with the public key's DER":   forge(t, header.with("alg", "HS256"), payload, mac(sha256.New, block.Bytes)),
		"HS256 with an empty secret":        forge(t, header.with("alg", "HS256"), payload, mac(sha256.New, nil)),
		"HS384 with the public key's PEM":   forge(t, header.with("alg", "HS384"), payload, mac(sha512.New384, pub)),
		"HS512 with the public key's PEM":   forge(t, header.with("alg", "HS512"), payload, mac(sha512.New, pub)),
		"another algorithm named":           forge(t, header.with("alg", "RS256"), payload, es256(t, own)),
		"another key":                       forge(t, header, payload, es256(t, own)),
		"another key, no kid":               forge(t, header.with("kid", nil), payload, es256(t, own)),
		"key in the header":                 forge(t, header.with("jwk", jwk), payload, es256(t, own)),
		"key in the header, no kid":         forge(t, header.with("jwk", jwk, "kid", nil), payload, es256(t, own)),
		"key at an address":                 forge(t, header.with("jku", "https://127.0.0.1:1/jwks"), payload, es256(t, own)),
		"certificate in the header":         forge(t, header.with("x5c", []string{base64.StdEncoding.EncodeToString(stolen(t, "kubelet").Certificate[0])}), payload, es256(t, privateKey(t, "kubelet.key"))),
		"certificate at an address":         forge(t, header.with("x5u", "https://127.0.0.1:1/cert"), payload, es256(t, own)),
		"kid of a path":                     forge(t, header.with("kid", "../../../../dev/null"), payload, mac(sha256.New, nil)),
		"kid of a statement":                forge(t, header.with("kid", "x' UNION SELECT 'key"), payload, es256(t, own)),
		"kid of another type":               forge(t, header.with("kid", []any{header["kid"]}), payload, es256(t, own)),
		"critical extension":                forge(t, header.with("crit", []string{"x"}, "x", true), payload, es256(t, privateKey(t, "sa.key"))),
		"payload not encoded":               forge(t, header.with("b64", false, "crit", []string{"b64"}), payload, es256(t, privateKey(t, "sa.key"))),
		"key of the certificate authority":  forge(t, header, payload, es256(t, privateKey(t, "ca.key"))),
		"key of the API server":             forge(t, header, payload, es256(t, privateKey(t, "apiserver.key"))),
		"JWS in JSON":                       fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2]),
		"encrypted":                         claims{"alg": "dir", "enc": "A128GCM"}.encode(t) + "..AAAA.AAAA.AAAA",
		"token in a token":                  forge(t, header.with("cty", "JWT"), claims{"iss": payload["iss"], "jwt": good}, es256(t, own)),
		"bootstrap token that was not made": "abcdef.0123456789abcdef",
		"not a token":                       "kubernetes-admin",
	}
	for _, alg := range []string{"none", "None", "NONE", "nOnE", "", "ES256K", "EdDSA"} {
		forged["alg "+alg] = forge(t, header.with("alg", alg), payload, signature(nil))
		forged["alg "+alg+" with the old signature"] = forge(t, header.with("alg", alg), payload, signature(decoded(t, parts[2])))
	}
	return forged
}

func decoded(t *testing.T, part string) []byte {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(part)
	check(t, err)
	return data
}

// derSignature returns valid signatures in an encoding that JWS does not use.
func derSignature(t *testing.T, key *ecdsa.PrivateKey) func(string) []byte {
	t.Helper()
	return func(input string) []byte {
		digest := sha256.Sum256([]byte(input))
		sig, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
		check(t, err)
		return sig
	}
}

// signedTokens returns tokens with a valid signature of the cluster's key and invalid claims.
func signedTokens(t *testing.T, good string) map[string]string {
	t.Helper()
	parts := strings.Split(good, ".")
	header, payload := decodeClaims(t, parts[0]), decodeClaims(t, parts[1])
	sign, now := es256(t, privateKey(t, "sa.key")), time.Now().Unix()
	if asks(t, withToken(t, forge(t, header, payload, sign))) != nil {
		t.Fatal("an unchanged token that this test signs is refused: it would prove nothing")
	}
	bound := payload["kubernetes.io"].(map[string]any)
	bind := func(changes ...any) claims { return payload.with("kubernetes.io", claims(bound).with(changes...)) }
	account := bound["serviceaccount"].(map[string]any)
	ghost := claims{"name": "ghost", "uid": "00000000-0000-4000-8000-000000000000"}
	changed := map[string]claims{
		"expired":                         payload.with("exp", now-120),
		"expired at the epoch":            payload.with("exp", 0),
		"without end":                     payload.with("exp", nil),
		"valid in an hour":                payload.with("nbf", now+3600),
		"another issuer":                  payload.with("iss", "https://elsewhere.example"),
		"issuer with a slash":             payload.with("iss", fmt.Sprint(payload["iss"], "/")),
		"list of issuers":                 payload.with("iss", []any{payload["iss"]}),
		"no issuer":                       payload.with("iss", nil),
		"another audience":                payload.with("aud", []string{"vault"}),
		"audience in another case":        payload.with("aud", []string{strings.ToUpper(payload["iss"].(string))}),
		"audience that begins the same":   payload.with("aud", []string{payload["iss"].(string) + ".evil"}),
		"no audience":                     payload.with("aud", nil),
		"empty audience":                  payload.with("aud", []string{""}),
		"subject of another account":      payload.with("sub", "system:serviceaccount:kube-system:default"),
		"subject of a user":               payload.with("sub", "kubernetes-admin"),
		"no subject":                      payload.with("sub", nil),
		"another namespace":               bind("namespace", "kube-system"),
		"another namespace, its subject":  bind("namespace", "kube-system").with("sub", "system:serviceaccount:kube-system:default"),
		"uid of an earlier account":       bind("serviceaccount", claims(account).with("uid", ghost["uid"])),
		"no uid":                          bind("serviceaccount", claims(account).with("uid", nil)),
		"account that does not exist":     bind("serviceaccount", ghost).with("sub", "system:serviceaccount:"+bound["namespace"].(string)+":ghost"),
		"pod that does not exist":         bind("pod", ghost),
		"secret that does not exist":      bind("secret", ghost),
		"node that does not exist":        bind("node", ghost),
		"no claims of Kubernetes":         payload.with("kubernetes.io", nil),
		"legacy token without its secret": legacy(bound, "ghost"),
		"legacy token of another secret":  legacy(bound, "kept"),
	}
	out := map[string]string{}
	for name, c := range changed {
		out[name] = forge(t, header, c, sign)
	}
	return out
}

// legacy returns the payload of a token in a Secret.
func legacy(bound map[string]any, secret string) claims {
	account := bound["serviceaccount"].(map[string]any)
	return claims{
		"iss": "kubernetes/serviceaccount", "sub": fmt.Sprintf("system:serviceaccount:%s:%s", bound["namespace"], account["name"]),
		"kubernetes.io/serviceaccount/namespace": bound["namespace"], "kubernetes.io/serviceaccount/secret.name": secret,
		"kubernetes.io/serviceaccount/service-account.name": account["name"], "kubernetes.io/serviceaccount/service-account.uid": account["uid"],
	}
}

// A token that is forged, stale, for another audience or bound to an object that does not exist
// is refused with 401, wherever a request can contain a token, and a TokenReview reports it as
// unauthenticated.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	ns := space(t)
	good := token(t, ns, authenticationv1.TokenRequestSpec{})
	check(t, asks(t, withToken(t, good)))
	_, err := client.For[*corev1.Secret](admin).In(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, StringData: map[string]string{"token": "another"}})
	check(t, err)
	bad := forgedTokens(t, good)
	maps.Copy(bad, signedTokens(t, good))
	unknown, root := anonymous(t), administrator(t)
	upgrading := unknown.overHTTP1(t)
	for what, forged := range bad {
		for where, header := range map[string][]string{
			"Authorization": {"Authorization", "Bearer " + forged},
			"in lower case": {"Authorization", "bearer " + forged},
			"WebSocket protocol": {"Connection", "Upgrade", "Upgrade", "websocket",
				"Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(forged)) + ", v4.channel.k8s.io"},
		} {
			if a := upgrading.do(t, "GET", "/api", "", header...); a.code != http.StatusUnauthorized {
				t.Errorf("%s, %s: %d, want 401: %.200s", what, where, a.code, a.body)
			}
		}
		body, err := json.Marshal(authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: forged}})
		check(t, err)
		review := root.must(t, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", string(body))
		if strings.Contains(review.body, `"authenticated":true`) {
			t.Errorf("%s: a TokenReview takes it for good: %s", what, review.body)
		}
	}
	for what, a := range map[string]answer{
		"query":  unknown.do(t, "GET", "/api?access_token="+good, ""),
		"cookie": unknown.do(t, "GET", "/api", "", "Cookie", "Authorization="+good),
		"basic":  unknown.do(t, "GET", "/api", "", "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("default:"+good))),
	} {
		if a.code != http.StatusUnauthorized && a.code != http.StatusForbidden {
			t.Errorf("a good token as %s: %d, want 401 or 403", what, a.code)
		}
	}
}

// A token becomes invalid with its service account, and another account of the same name does not
// make it valid again.
func TestTokenOfRecreatedAccount(t *testing.T) {
	t.Parallel()
	ns := space(t)
	accounts := client.For[*corev1.ServiceAccount](admin).In(ns)
	make := func() *corev1.ServiceAccount {
		made, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "mallory"}})
		check(t, err)
		return made
	}
	make()
	var out authenticationv1.TokenRequest
	check(t, accounts.Post(t.Context(), "mallory", "token", &authenticationv1.TokenRequest{}, &out))
	c := withToken(t, out.Status.Token)
	eventually(t, "the token works", func() error { return asks(t, c) })
	check(t, accounts.Delete(t.Context(), "mallory", metav1.DeleteOptions{}))
	eventually(t, "the token ends with its account", func() error { return unauthorized(asks(t, c)) })
	make()
	check(t, unauthorized(asks(t, c)))
}

func unauthorized(err error) error {
	if !apierrors.IsUnauthorized(err) {
		return fmt.Errorf("got %v, want 401", err)
	}
	return nil
}

// A token in a Secret is valid only while that Secret contains exactly this token, is not marked
// as invalid and its account exists.
func TestLegacySecretToken(t *testing.T) {
	t.Parallel()
	ns := space(t)
	secrets := client.For[*corev1.Secret](admin).In(ns)
	kept := func(name string) string {
		_, err := secrets.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
			Type:       corev1.SecretTypeServiceAccountToken,
		})
		check(t, err)
		var text string
		eventually(t, "the Secret holds a token", func() error {
			s, err := secrets.Get(t.Context(), name)
			if text = string(s.Data[corev1.ServiceAccountTokenKey]); err == nil && text == "" {
				err = errNotYet
			}
			return err
		})
		return text
	}
	for name, end := range map[string]func(name string) error{
		"deleted": func(name string) error { return secrets.Delete(t.Context(), name, metav1.DeleteOptions{}) },
		"marked": func(name string) error {
			_, err := secrets.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"kubernetes.io/legacy-token-invalid-since":"2026-01-01"}}}`))
			return err
		},
		"replaced": func(name string) error {
			_, err := secrets.Patch(t.Context(), name, types.MergePatchType, []byte(`{"data":{"token":"eA=="}}`))
			return err
		},
	} {
		c := withToken(t, kept(name))
		check(t, asks(t, c))
		check(t, end(name))
		eventually(t, "a token whose Secret was "+name+" is refused", func() error { return unauthorized(asks(t, c)) })
	}
}
