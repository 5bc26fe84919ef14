package apiserver_test

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/apiserver/authn"
)

// The API server notes since when it records the use of tokens in Secrets, and labels a
// Secret whose token is used with the day.
func TestUseOfTokensInSecretsIsRecorded(t *testing.T) {
	tokens, key := newTokens(t)
	w := start(t, withTokens(t, tokens))
	today := time.Now().UTC().Format(time.DateOnly)
	const tracking = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking"
	eventually(t, "the first day is noted", func() bool { return w.do("GET", tracking, "", "").Code == 200 })
	if since := must[corev1.ConfigMap](w, 200, "GET", tracking, "", "").Data["since"]; since != today {
		t.Errorf("since %q", since)
	}

	account := must[corev1.ServiceAccount](w, 201, "POST", "/api/v1/namespaces/default/serviceaccounts", jsonType, `{"metadata":{"name":"robot"}}`)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(map[string]any{
		"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:default:robot",
		"kubernetes.io/serviceaccount/namespace": "default", "kubernetes.io/serviceaccount/secret.name": "kept",
		"kubernetes.io/serviceaccount/service-account.name": "robot", "kubernetes.io/serviceaccount/service-account.uid": string(account.UID),
	}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	must[corev1.Secret](w, 201, "POST", "/api/v1/namespaces/default/secrets", jsonType, `{"metadata":{"name":"kept","annotations":{"kubernetes.io/service-account.name":"robot"}},
		"type":"kubernetes.io/service-account-token","data":{"token":"`+base64.StdEncoding.EncodeToString([]byte(token))+`"}}`)
	review := func() authenticationv1.TokenReviewStatus {
		return must[authenticationv1.TokenReview](w, 201, "POST", reviews+"tokenreviews", jsonType, `{"spec":{"token":"`+token+`"}}`).Status
	}
	if got := review(); !got.Authenticated {
		t.Fatalf("the token is not accepted: %+v", got)
	}
	const secret = "/api/v1/namespaces/default/secrets/kept"
	eventually(t, "the use is recorded", func() bool {
		return must[corev1.Secret](w, 200, "GET", secret, "", "").Labels[authn.LastUsed] == today
	})
	before := must[corev1.Secret](w, 200, "GET", secret, "", "").ResourceVersion
	review()
	if now := must[corev1.Secret](w, 200, "GET", secret, "", "").ResourceVersion; now != before {
		t.Error("a second use on the same day writes the Secret")
	}
	must[corev1.Secret](w, 200, "PATCH", secret, mergeType, `{"metadata":{"labels":{"kubernetes.io/legacy-token-invalid-since":"2026-01-01"}}}`)
	eventually(t, "the invalid token is refused", func() bool { return !review().Authenticated }) // the cache may lag
}
