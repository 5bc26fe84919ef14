package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/webhook"
	"podium/pkg/client/revocation"
	"podium/pkg/scheme"
)

// Authentication is how the server knows who asks. The zero value knows nobody.
type Authentication struct {
	Requests    []authn.Authenticator    // by what the connection shows: certificates, front proxies
	Tokens      authn.TokenAuthenticator // by bearer tokens; nil: no tokens are known
	Audiences   []string                 // the server's own names, for one of which a token must be
	Anonymous   bool                     // let those ask for health and version who show nothing
	Issuer      *authn.Tokens            // whose keys are published; nil: no keys are
	KeysURI     string                   // where others find them; default: at this server
	Connections *revocation.Connections  // notes connections, so that they can be cut; nil: none is
	Revocations *authn.Revocations       // shared with other servers and daemons; nil: none are
	Run         []func(context.Context)  // what keeps it up to date while the server runs

	// Published is what other API servers of the cluster need in order to know
	// users as this one does, kept in a ConfigMap; nil: none is.
	Published func() map[string]string
}

// authenticator is all of it.
func (a *Authentication) authenticator(objects authn.Objects) authn.Authenticator {
	known := slices.Clone(a.Requests)
	if a.Tokens != nil {
		known = append(known, authn.Bearer(a.Tokens, objects, a.Audiences))
	}
	if a.Anonymous {
		known = append(known, authn.Anonymous())
	}
	return authn.FirstOf(known...)
}

func (a *Authentication) run(ctx context.Context, g *errgroup.Group) {
	for _, run := range a.Run {
		g.Go(func() error { run(ctx); return nil })
	}
}

// servesIssuer says whether the path is one of the pages by which others verify
// our tokens.
func (a *Authentication) servesIssuer(path string) bool {
	return a.Issuer != nil && (path == authn.IssuerPath || path == authn.KeysPath)
}

// serveIssuer answers with who issues tokens, or with the keys.
func (s *Server) serveIssuer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "public, max-age=3600")
	a := &s.cfg.Authn
	if r.URL.Path == authn.KeysPath {
		writeJSON(w, r, "application/jwk-set+json", a.Issuer.Keys())
		return
	}
	uri := a.KeysURI
	if uri == "" {
		uri = "https://" + s.cfg.address() + authn.KeysPath
	}
	writeJSON(w, r, "application/json", a.Issuer.Issuer(uri))
}

// publishedName is the ConfigMap in kube-system from which other API servers
// learn how to know users.
const publishedName = revocation.ConfigMap

// ensurePublished makes that ConfigMap what it should be. Keys of others stay.
func (s *Server) ensurePublished(ctx context.Context) error {
	if s.cfg.Authn.Published == nil {
		return nil
	}
	data := s.cfg.Authn.Published()
	want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: publishedName}, Data: data}
	return s.shape(ctx, corev1.SchemeGroupVersion.WithResource("configmaps"), want, func(obj scheme.Object) bool {
		have, changed := obj.(*corev1.ConfigMap), false
		for key, value := range data {
			if have.Data[key] == value {
				continue
			}
			if have.Data == nil {
				have.Data = map[string]string{}
			}
			have.Data[key], changed = value, true
		}
		return changed
	})
}

// maxTokenLife bounds the damage of a token that is lost: upstream has no bound
// unless one is configured.
const maxTokenLife = 365 * 24 * time.Hour

// authnFlags are the flags that say who is known.
type authnFlags struct {
	clientCA  string
	clientCRL string

	issuers    []string
	audiences  []string
	signingKey string
	publicKeys []string
	keysURI    string
	maxToken   time.Duration

	bootstrapTokens bool
	anonymous       bool

	oidc authn.OIDCConfig

	webhook        string
	webhookVersion string
	webhookTTL     time.Duration

	proxyCA     string
	proxyNames  []string
	proxyUsers  []string
	proxyUIDs   []string
	proxyGroups []string
	proxyExtras []string

	// What parse reads.
	clientRoots, proxyRoots func() *x509.CertPool
	revoked                 *authn.Revocations
	keys                    func() *authn.KeySet
	trust                   func() *trust // nil: there are no authorities
	oidcTokens              *authn.OIDC
	webhookTokens           *authn.Webhook
}

func (o *authnFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&o.clientCA, "client-ca-file", "", "file with the authorities that sign clients' certificates; read again when it changes")
	f.StringVar(&o.clientCRL, "client-crl-file", "", "file with these authorities' revocation lists (PEM, X509 CRL); read again when it changes: a certificate on a list is refused within seconds by all API servers, kubelets and control-plane daemons, and what is open with it ends")

	f.StringArrayVar(&o.issuers, "service-account-issuer", []string{"https://kubernetes.default.svc.cluster.local"}, "who service account tokens are issued by; given several times, the first is that of new tokens, and those of all are accepted")
	f.StringSliceVar(&o.audiences, "api-audiences", nil, "audiences of tokens for this server (default: the issuers)")
	f.StringVar(&o.signingKey, "service-account-signing-key-file", "", "file with the private key that signs service account tokens; read again when it changes")
	f.StringSliceVar(&o.publicKeys, "service-account-key-file", nil, "files with public keys whose tokens are accepted, too; read again when they change")
	f.StringVar(&o.keysURI, "service-account-jwks-uri", "", "where others find the keys that verify service account tokens (default: at this server)")
	f.DurationVar(&o.maxToken, "service-account-max-token-expiration", maxTokenLife, "maximum lifetime of a service account token; a request for more gets this and a warning; 0: no limit")

	f.BoolVar(&o.bootstrapTokens, "enable-bootstrap-token-auth", false, "know machines that are about to join by the tokens kept in Secrets of type bootstrap.kubernetes.io/token in kube-system")
	f.BoolVar(&o.anonymous, "anonymous-auth", true, "let clients without credentials ask for health and version, and, where a role says so, for the ConfigMap kube-public/cluster-info")

	f.StringVar(&o.oidc.IssuerURL, "oidc-issuer-url", "", "OpenID Connect provider whose ID tokens are accepted (https only)")
	f.StringVar(&o.oidc.ClientID, "oidc-client-id", "", "client that these tokens must be for")
	f.StringVar(&o.oidc.CAFile, "oidc-ca-file", "", "file with the authority that signs the provider's certificate (default: the machine's authorities)")
	f.StringVar(&o.oidc.UsernameClaim, "oidc-username-claim", "sub", "claim with the user's name")
	f.StringVar(&o.oidc.UsernamePrefix, "oidc-username-prefix", "", "prefix of users' names (default: the issuer and #, unless the claim is email; -: none)")
	f.StringVar(&o.oidc.GroupsClaim, "oidc-groups-claim", "", "claim with the user's groups")
	f.StringVar(&o.oidc.GroupsPrefix, "oidc-groups-prefix", "", "prefix of groups' names")
	f.StringSliceVar(&o.oidc.Algorithms, "oidc-signing-algs", []string{"RS256"}, "algorithms in which these tokens may be signed")
	f.StringToStringVar(&o.oidc.RequiredClaims, "oidc-required-claim", nil, "claims and values that these tokens must have (name=value)")

	f.StringVar(&o.webhook, "authentication-token-webhook-config-file", "", "kubeconfig of a service that is asked whose a token is")
	f.StringVar(&o.webhookVersion, "authentication-token-webhook-version", "v1beta1", "version of authentication.k8s.io that the service speaks: v1 or v1beta1")
	f.DurationVar(&o.webhookTTL, "authentication-token-webhook-cache-ttl", 2*time.Minute, "how long the service's answers are good for")

	f.StringVar(&o.proxyCA, "requestheader-client-ca-file", "", "file with the authorities of proxies in front of this server; read again when it changes")
	f.StringSliceVar(&o.proxyNames, "requestheader-allowed-names", nil, "common names of the proxies' certificates (default: any)")
	f.StringSliceVar(&o.proxyUsers, "requestheader-username-headers", nil, "headers in which a proxy says the user's name, usually X-Remote-User")
	f.StringSliceVar(&o.proxyUIDs, "requestheader-uid-headers", nil, "headers in which a proxy says the user's UID, usually X-Remote-Uid")
	f.StringSliceVar(&o.proxyGroups, "requestheader-group-headers", nil, "headers in which a proxy says the user's groups, usually X-Remote-Group")
	f.StringSliceVar(&o.proxyExtras, "requestheader-extra-headers-prefix", nil, "prefixes of headers in which a proxy says more of the user, usually X-Remote-Extra-")
}

// parse checks the flags and reads the files they name; problems are all told
// at once.
func (o *authnFlags) parse(log *slog.Logger) error {
	var errs []error
	note := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
		}
	}
	var err error
	errs = append(errs, o.readTrust(log))
	o.keys, err = authn.KeyFiles(o.signingKey, o.publicKeys)
	note("service account keys", err)
	errs = append(errs, o.checkIssuers()...)
	if o.proxyCA != "" && len(o.proxyUsers) == 0 {
		errs = append(errs, errors.New("--requestheader-client-ca-file needs --requestheader-username-headers"))
	}
	switch {
	case o.clientCRL != "" && o.clientCA == "":
		errs = append(errs, errors.New("--client-crl-file needs --client-ca-file"))
	case o.clientCRL != "":
		o.revoked, err = authn.RevocationFile(o.clientCRL, o.clientCA, func(err error) {
			log.Error("revocation lists cannot be read; those read before stay in force", "err", err)
		})
		note("--client-crl-file", err)
	}
	if o.oidc.IssuerURL != "" || o.oidc.ClientID != "" {
		o.oidc.Log = log
		o.oidcTokens, err = authn.NewOIDC(o.oidc)
		errs = append(errs, err)
	}
	if o.webhook != "" {
		o.webhookTokens, err = o.openWebhook()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// readTrust reads the authorities of clients and of proxies.
func (o *authnFlags) readTrust(log *slog.Logger) (err error) {
	if o.trust, err = trustFiles(o.clientCA, o.proxyCA, o.proxyNames, log); err != nil {
		return err
	}
	if o.clientCA != "" {
		o.clientRoots = func() *x509.CertPool { return o.trust().clients }
	}
	if o.proxyCA != "" {
		o.proxyRoots = func() *x509.CertPool { return o.trust().proxies }
	}
	return nil
}

func (o *authnFlags) checkIssuers() []error {
	var errs []error
	for i, issuer := range o.issuers {
		if issuer == "" || slices.Contains(o.issuers[:i], issuer) {
			errs = append(errs, fmt.Errorf("--service-account-issuer=%q is empty or given twice", issuer))
		}
	}
	if u, err := url.Parse(o.keysURI); o.keysURI != "" && (err != nil || u.Scheme != "https") {
		errs = append(errs, fmt.Errorf("--service-account-jwks-uri=%s must begin with https://", o.keysURI))
	}
	if o.maxToken != 0 && (o.maxToken < time.Hour || o.maxToken > 1<<32*time.Second) {
		errs = append(errs, fmt.Errorf("--service-account-max-token-expiration=%v must be between an hour and 2^32 seconds", o.maxToken))
	}
	return errs
}

func (o *authnFlags) openWebhook() (*authn.Webhook, error) {
	service, err := webhook.Load(o.webhook)
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	return authn.NewWebhook(authn.WebhookConfig{Service: service, Version: o.webhookVersion, CacheTTL: o.webhookTTL, Audiences: o.names()})
}

// names are those by which a token may call this server.
func (o *authnFlags) names() []string {
	if len(o.audiences) > 0 {
		return o.audiences
	}
	return o.issuers
}

// build makes what parse has read into the server's authentication. Those who
// can tell at a glance whether a token is theirs come first.
func (o *authnFlags) build() Authentication {
	var revoked func() *revocation.List
	if o.revoked != nil {
		revoked = o.revoked.List
	}
	issuer := authn.NewTokens(authn.TokenConfig{Issuers: o.issuers, Audiences: o.names(), Keys: o.keys})
	a := Authentication{
		Audiences: o.names(), Anonymous: o.anonymous, Issuer: issuer, KeysURI: o.keysURI, Connections: &revocation.Connections{},
		Published: o.published, Revocations: o.revoked,
	}
	if o.proxyRoots != nil {
		a.Requests = append(a.Requests, authn.FrontProxy(authn.FrontProxyConfig{
			Certificates: authn.CertificateConfig{Roots: o.proxyRoots}, Names: o.proxyNames,
			UserHeaders: o.proxyUsers, UIDHeaders: o.proxyUIDs, GroupHeaders: o.proxyGroups, ExtraPrefixes: o.proxyExtras,
		}))
	}
	if o.clientRoots != nil {
		a.Requests = append(a.Requests, authn.Certificates(authn.CertificateConfig{Roots: o.clientRoots, Revoked: revoked}))
	}
	tokens := []authn.TokenAuthenticator{issuer}
	if o.bootstrapTokens {
		tokens = append(tokens, authn.ForServer(o.names(), authn.BootstrapTokens(nil)))
	}
	if o.oidcTokens != nil {
		tokens = append(tokens, authn.ForServer(o.names(), o.oidcTokens))
		a.Run = append(a.Run, o.oidcTokens.Run)
	}
	if o.webhookTokens != nil {
		tokens = append(tokens, o.webhookTokens)
	}
	a.Tokens = authn.FirstToken(tokens...)
	if revoked != nil {
		a.Run = append(a.Run, func(ctx context.Context) { a.Connections.Run(ctx, revoked) })
	}
	return a
}

// published are the authorities of clients and of proxies, and how proxies say
// whom they speak for.
func (o *authnFlags) published() map[string]string {
	out := map[string]string{}
	if o.clientCA != "" {
		out["client-ca-file"] = string(o.trust().clientsPEM)
	}
	if o.proxyCA == "" {
		return out
	}
	out["requestheader-client-ca-file"] = string(o.trust().proxiesPEM)
	for key, names := range map[string][]string{
		"requestheader-allowed-names": o.proxyNames, "requestheader-username-headers": o.proxyUsers, "requestheader-uid-headers": o.proxyUIDs,
		"requestheader-group-headers": o.proxyGroups, "requestheader-extra-headers-prefix": o.proxyExtras,
	} {
		list, err := json.Marshal(append([]string{}, names...))
		if err != nil {
			panic(err) // strings always have a JSON form
		}
		out[key] = string(list)
	}
	return out
}

// ask makes a serving configuration ask clients for their certificates. These
// are looked at with each request (package authn), not when the connection is
// made: a proxy's have other authorities than a client's, and a certificate may
// be revoked later.
func (o *authnFlags) ask(cfg *tls.Config) {
	if o.clientRoots == nil && o.proxyRoots == nil {
		return
	}
	cfg.ClientAuth = tls.RequestClientCert
}
