package manager

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

// Each controller may use the credentials of its own service account in kube-system, with
// a role limited to what that controller uses. The process holds all the tokens, so this
// does not isolate the controllers; but roles and the audit log distinguish them, and a
// faulty controller is limited to its own role.

const (
	tokenLifetime = time.Hour
	tokenRenewal  = tokenLifetime * 4 / 5
	tokenTimeout  = 10 * time.Second
)

// identities returns a function that builds clients with the credentials of service
// accounts. It uses daemon to create the accounts and to request their tokens.
func identities(daemon *client.Client, api client.Config, newClient func(client.Config) (*client.Client, error)) func(account string) (*client.Client, error) {
	if api.TLS != nil { // a client certificate takes precedence over a token
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

// identity caches the token of one account.
type identity struct {
	daemon  *client.Client
	account string

	mu    sync.Mutex
	value string
	renew time.Time
}

// token returns the cached token. It requests a new one long before the token
// expires, and returns the old one while that fails.
func (i *identity) token() (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.value != "" && time.Now().Before(i.renew) {
		return i.value, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), tokenTimeout)
	defer cancel()
	fresh, err := i.request(ctx)
	if err != nil {
		if i.value != "" {
			return i.value, nil
		}
		return "", fmt.Errorf("token of service account %s/%s: %w", metav1.NamespaceSystem, i.account, err)
	}
	i.value, i.renew = fresh, time.Now().Add(tokenRenewal)
	return fresh, nil
}

// forget drops the token after the server rejected it: the account was deleted.
func (i *identity) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.value = ""
}

// request requests a token. It creates the account if there is none.
func (i *identity) request(ctx context.Context) (string, error) {
	accounts := client.For[*corev1.ServiceAccount](i.daemon).In(metav1.NamespaceSystem)
	seconds := int64(tokenLifetime / time.Second)
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
