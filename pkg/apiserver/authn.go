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

// Authentication configures how the server authenticates requests. The zero
// value authenticates none.
type Authentication struct {
	Requests    []authn.Authenticator    // by the connection: client certificates, front proxies
	Tokens      authn.TokenAuthenticator // by bearer token; nil: no token is accepted
	Audiences   []string                 // the server's audiences; a token must be for one of them
	Anonymous   bool                     // authenticate requests without credentials as system:anonymous
	Issuer      *authn.Tokens            // the issuer whose keys are published; nil: no keys are published
	KeysURI     string                   // the jwks_uri of the discovery document; default: at this server
	Connections *revocation.Connections  // tracks connections to close those of revoked certificates; nil: none are tracked
	Revocations *authn.Revocations       // shared with other servers and daemons; nil: no revocation lists
	Run         []func(context.Context)  // run until the server ends, to keep the above current

	// Published returns what other API servers need to authenticate users as
	// this one does; it is stored in the ConfigMap
	// extension-apiserver-authentication. nil: nothing is published.
	Published func() map[string]string
}

// authenticator returns one authenticator that tries, in order, the
// connection's credentials, bearer tokens and, if enabled, anonymous access.
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

// run starts the functions in a.Run as goroutines of g; they end with ctx.
func (a *Authentication) run(ctx context.Context, g *errgroup.Group) {
	for _, run := range a.Run {
		g.Go(func() error { run(ctx); return nil })
	}
}

// servesIssuer reports whether path is one of the OpenID Connect discovery
// endpoints of the service account issuer.
func (a *Authentication) servesIssuer(path string) bool {
	return a.Issuer != nil && (path == authn.IssuerPath || path == authn.KeysPath)
}

// serveIssuer writes the issuer's discovery document, or its keys.
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

// publishedName is the ConfigMap in kube-system that tells extension API
// servers how to authenticate users.
const publishedName = revocation.ConfigMap

// ensurePublished creates that ConfigMap, or sets the keys that this server
// owns. Other keys are left alone.
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

// maxTokenLife is the default maximum lifetime of a service account token.
// Upstream has none; a limit bounds the damage of a leaked token.
const maxTokenLife = 365 * 24 * time.Hour

// authnFlags are the authentication flags, bound to the configurations of the
// authenticators and of the result.
type authnFlags struct {
	out     Authentication
	tokens  authn.TokenConfig
	proxy   authn.FrontProxyConfig
	oidc    authn.OIDCConfig
	webhook authn.WebhookConfig

	clientCA, clientCRL, proxyCA string
	signingKey                   string
	publicKeys                   []string
	maxToken                     time.Duration
	bootstrapTokens              bool
	webhookFile                  string

	// Set by parse; nil if the flag is not given.
	clients       authn.CertificateConfig
	trust         func() *trust // nil: no CA file is given
	oidcTokens    *authn.OIDC
	webhookTokens *authn.Webhook
}

func (o *authnFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&o.clientCA, "client-ca-file", "", "file with the CAs of client certificates; reloaded when it changes")
	f.StringVar(&o.clientCRL, "client-crl-file", "", "file with the CAs' revocation lists (PEM, X509 CRL); reloaded when it changes: within seconds all API servers, kubelets and control-plane daemons refuse a certificate on a list and close its connections")

	f.StringArrayVar(&o.tokens.Issuers, "service-account-issuer", []string{"https://kubernetes.default.svc.cluster.local"}, "issuer of service account tokens; may be repeated: the first is the issuer of new tokens, and tokens of all are accepted")
	f.StringSliceVar(&o.tokens.Audiences, "api-audiences", nil, "audiences of tokens for this server (default: the issuers)")
	f.StringVar(&o.signingKey, "service-account-signing-key-file", "", "file with the private key that signs service account tokens; reloaded when it changes")
	f.StringSliceVar(&o.publicKeys, "service-account-key-file", nil, "files with public keys that verify service account tokens; reloaded when they change")
	f.StringVar(&o.out.KeysURI, "service-account-jwks-uri", "", "URL of the keys that verify service account tokens (default: at this server)")
	f.DurationVar(&o.maxToken, "service-account-max-token-expiration", maxTokenLife, "maximum lifetime of a service account token; a request for more gets this and a warning; 0: no limit")

	f.BoolVar(&o.bootstrapTokens, "enable-bootstrap-token-auth", false, "authenticate tokens in Secrets of type bootstrap.kubernetes.io/token in namespace kube-system")
	f.BoolVar(&o.out.Anonymous, "anonymous-auth", true, "authenticate requests without credentials as system:anonymous; default roles allow them to read health and version only")

	f.StringVar(&o.oidc.IssuerURL, "oidc-issuer-url", "", "URL of the OpenID Connect provider whose ID tokens are accepted (https only)")
	f.StringVar(&o.oidc.ClientID, "oidc-client-id", "", "client ID for which the tokens must be issued")
	f.StringVar(&o.oidc.CAFile, "oidc-ca-file", "", "file with the CA of the provider's certificate (default: the CAs of the host)")
	f.StringVar(&o.oidc.UsernameClaim, "oidc-username-claim", "sub", "claim with the user's name")
	f.StringVar(&o.oidc.UsernamePrefix, "oidc-username-prefix", "", "prefix of users' names (default: the issuer and #, unless the claim is email; -: none)")
	f.StringVar(&o.oidc.GroupsClaim, "oidc-groups-claim", "", "claim with the user's groups")
	f.StringVar(&o.oidc.GroupsPrefix, "oidc-groups-prefix", "", "prefix of groups' names")
	f.StringSliceVar(&o.oidc.Algorithms, "oidc-signing-algs", []string{"RS256"}, "accepted signing algorithms")
	f.StringToStringVar(&o.oidc.RequiredClaims, "oidc-required-claim", nil, "required claims and their values (name=value)")

	f.StringVar(&o.webhookFile, "authentication-token-webhook-config-file", "", "kubeconfig file of the token authentication webhook")
	f.StringVar(&o.webhook.Version, "authentication-token-webhook-version", "v1beta1", "API version of the TokenReview that is sent to the webhook: v1 or v1beta1")
	f.DurationVar(&o.webhook.CacheTTL, "authentication-token-webhook-cache-ttl", 2*time.Minute, "cache TTL for the webhook's responses")

	f.StringVar(&o.proxyCA, "requestheader-client-ca-file", "", "file with the CAs of the client certificates of authenticating proxies; reloaded when it changes")
	f.StringSliceVar(&o.proxy.Names, "requestheader-allowed-names", nil, "allowed common names of the proxies' certificates (default: any)")
	f.StringSliceVar(&o.proxy.UserHeaders, "requestheader-username-headers", nil, "headers with the user name, usually X-Remote-User")
	f.StringSliceVar(&o.proxy.UIDHeaders, "requestheader-uid-headers", nil, "headers with the user's UID, usually X-Remote-Uid")
	f.StringSliceVar(&o.proxy.GroupHeaders, "requestheader-group-headers", nil, "headers with the user's groups, usually X-Remote-Group")
	f.StringSliceVar(&o.proxy.ExtraPrefixes, "requestheader-extra-headers-prefix", nil, "prefixes of headers with extra information about the user, usually X-Remote-Extra-")
}

// parse validates the flags and reads the files that they name. Its error names
// every problem. log receives errors of later reloads.
func (o *authnFlags) parse(log *slog.Logger) error {
	var errs []error
	note := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
		}
	}
	var err error
	errs = append(errs, o.readTrust(log))
	o.tokens.Keys, err = authn.KeyFiles(o.signingKey, o.publicKeys)
	note("service account keys", err)
	errs = append(errs, o.checkIssuers()...)
	if o.proxyCA != "" && len(o.proxy.UserHeaders) == 0 {
		errs = append(errs, errors.New("--requestheader-client-ca-file needs --requestheader-username-headers"))
	}
	switch {
	case o.clientCRL != "" && o.clientCA == "":
		errs = append(errs, errors.New("--client-crl-file needs --client-ca-file"))
	case o.clientCRL != "":
		o.out.Revocations, err = authn.RevocationFile(o.clientCRL, o.clientCA, func(err error) {
			log.Error("reload revocation lists failed; the previous ones stay in use", "err", err)
		})
		note("--client-crl-file", err)
	}
	if o.oidc.IssuerURL != "" || o.oidc.ClientID != "" {
		o.oidc.Log = log
		o.oidcTokens, err = authn.NewOIDC(o.oidc)
		errs = append(errs, err)
	}
	if o.webhookFile != "" {
		o.webhookTokens, err = o.openWebhook()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// readTrust reads the CA files of clients and of front proxies, and watches
// them for changes.
func (o *authnFlags) readTrust(log *slog.Logger) (err error) {
	if o.trust, err = trustFiles(o.clientCA, o.proxyCA, o.proxy.Names, log); err != nil {
		return err
	}
	if o.clientCA != "" {
		o.clients.Roots = func() *x509.CertPool { return o.trust().clients }
	}
	if o.proxyCA != "" {
		o.proxy.Certificates.Roots = func() *x509.CertPool { return o.trust().proxies }
	}
	return nil
}

func (o *authnFlags) checkIssuers() []error {
	var errs []error
	for i, issuer := range o.tokens.Issuers {
		if issuer == "" || slices.Contains(o.tokens.Issuers[:i], issuer) {
			errs = append(errs, fmt.Errorf("--service-account-issuer=%q is empty or given twice", issuer))
		}
	}
	if u, err := url.Parse(o.out.KeysURI); o.out.KeysURI != "" && (err != nil || u.Scheme != "https") {
		errs = append(errs, fmt.Errorf("--service-account-jwks-uri=%s must begin with https://", o.out.KeysURI))
	}
	if o.maxToken != 0 && (o.maxToken < time.Hour || o.maxToken > 1<<32*time.Second) {
		errs = append(errs, fmt.Errorf("--service-account-max-token-expiration=%v must be between an hour and 2^32 seconds", o.maxToken))
	}
	return errs
}

func (o *authnFlags) openWebhook() (_ *authn.Webhook, err error) {
	if o.webhook.Service, err = webhook.Load(o.webhookFile); err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	o.webhook.Audiences = o.names()
	return authn.NewWebhook(o.webhook)
}

// names returns the audiences of this server: --api-audiences, or else the
// issuers.
func (o *authnFlags) names() []string {
	if len(o.tokens.Audiences) > 0 {
		return o.tokens.Audiences
	}
	return o.tokens.Issuers
}

// build returns the authentication that parse has read. Authenticators that
// recognize their tokens without a remote call come first.
func (o *authnFlags) build() Authentication {
	a := o.out
	a.Audiences, a.Issuer, a.Published, a.Connections = o.names(), authn.NewTokens(o.tokens), o.published, &revocation.Connections{}
	if o.proxy.Certificates.Roots != nil {
		a.Requests = append(a.Requests, authn.FrontProxy(o.proxy))
	}
	if a.Revocations != nil {
		o.clients.Revoked = a.Revocations.List
		a.Run = append(a.Run, func(ctx context.Context) { a.Connections.Run(ctx, a.Revocations.List) })
	}
	if o.clients.Roots != nil {
		a.Requests = append(a.Requests, authn.Certificates(o.clients))
	}
	tokens := []authn.TokenAuthenticator{a.Issuer}
	if o.bootstrapTokens {
		tokens = append(tokens, authn.ForServer(a.Audiences, authn.BootstrapTokens(nil)))
	}
	if o.oidcTokens != nil {
		tokens = append(tokens, authn.ForServer(a.Audiences, o.oidcTokens))
		a.Run = append(a.Run, o.oidcTokens.Run)
	}
	if o.webhookTokens != nil {
		tokens = append(tokens, o.webhookTokens)
	}
	a.Tokens = authn.FirstToken(tokens...)
	return a
}

// published returns the data of the published ConfigMap: the CAs of clients and
// front proxies, and the headers that front proxies use.
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
		"requestheader-allowed-names": o.proxy.Names, "requestheader-username-headers": o.proxy.UserHeaders, "requestheader-uid-headers": o.proxy.UIDHeaders,
		"requestheader-group-headers": o.proxy.GroupHeaders, "requestheader-extra-headers-prefix": o.proxy.ExtraPrefixes,
	} {
		list, err := json.Marshal(append([]string{}, names...))
		if err != nil {
			panic(err) // strings always have a JSON form
		}
		out[key] = string(list)
	}
	return out
}

// requestClientCertificates makes a serving configuration request client certificates. The
// authenticators verify them with each request, not in the TLS handshake: front
// proxies have another CA than clients, and a certificate may be revoked after
// the handshake.
func (o *authnFlags) requestClientCertificates(cfg *tls.Config) {
	if o.clients.Roots == nil && o.proxy.Certificates.Roots == nil {
		return
	}
	cfg.ClientAuth = tls.RequestClientCert
}
