package crew

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// Each controller may have a service account of its own in kube-system, with a
// role that holds what that controller uses. The process has them all: this
// does not keep its controllers apart, but it says in roles and in the audit log
// who needs what, and a controller that goes wrong stays within its own.

const (
	tokenLife   = time.Hour
	tokenRenew  = tokenLife * 4 / 5
	tokenWithin = 10 * time.Second
)

// identities makes clients that speak as service accounts. daemon makes the
// accounts and draws their tokens.
func identities(daemon *client.Client, api client.Config, newClient func(client.Config) (*client.Client, error)) func(account string) (*client.Client, error) {
	if api.TLS != nil { // a certificate would count more than the token
		api.TLS = api.TLS.Clone()
		api.TLS.Certificates, api.TLS.GetClientCertificate = nil, func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
	}
	return func(account string) (*client.Client, error) {
		i := &identity{daemon: daemon, account: account}
		cfg := api
		cfg.Token, cfg.Rejected = i.token, i.forget
		cfg.UserAgent = api.UserAgent + "/" + account
		return newClient(cfg)
	}
}

// identity keeps the token of one account.
type identity struct {
	daemon  *client.Client
	account string

	mu    sync.Mutex
	value string
	renew time.Time
}

// token is the present token; it is drawn anew long before it expires. While
// that fails the old one is used.
func (i *identity) token() (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.value != "" && time.Now().Before(i.renew) {
		return i.value, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), tokenWithin)
	defer cancel()
	fresh, err := i.draw(ctx)
	if err != nil {
		if i.value != "" {
			return i.value, nil
		}
		return "", fmt.Errorf("token of service account %s/%s: %w", metav1.NamespaceSystem, i.account, err)
	}
	i.value, i.renew = fresh, time.Now().Add(tokenRenew)
	return fresh, nil
}

// forget is called when the server did not take the token: somebody has
// deleted the account.
func (i *identity) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.value = ""
}

// draw asks for a token, of an account that is made if there is none.
func (i *identity) draw(ctx context.Context) (string, error) {
	accounts := client.For[*corev1.ServiceAccount](i.daemon).In(metav1.NamespaceSystem)
	seconds := int64(tokenLife / time.Second)
	ask := func() (string, error) {
		out := &authenticationv1.TokenRequest{}
		err := accounts.Post(ctx, i.account, "token", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, out)
		return out.Status.Token, err
	}
	token, err := ask()
	if !apierrors.IsNotFound(err) {
		return token, err
	}
	_, err = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: i.account}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	return ask()
}
