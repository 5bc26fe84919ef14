package kubelet

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"podium/pkg/client"
	"podium/pkg/client/access"
	"podium/pkg/client/revocation"
)

// accessFlags are the flags for authentication and authorization of the kubelet's
// server.
type accessFlags struct {
	anonymous, tokens             bool
	mode                          string
	tokenTTL, allowTTL, refuseTTL time.Duration
}

const modeWebhook = "Webhook"

func (a *accessFlags) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&a.anonymous, "anonymous-auth", false, "allow anonymous requests; they have the user name system:anonymous")
	fs.BoolVar(&a.tokens, "authentication-token-webhook", true, "authenticate bearer tokens by TokenReview")
	fs.DurationVar(&a.tokenTTL, "authentication-token-webhook-cache-ttl", access.DefaultTokenTTL, "cache TTL for authenticated tokens")
	fs.StringVar(&a.mode, "authorization-mode", modeWebhook, "authorization mode of the server: Webhook (SubjectAccessReview)")
	fs.DurationVar(&a.allowTTL, "authorization-webhook-cache-authorized-ttl", access.DefaultAllowTTL, "cache TTL for allowed decisions")
	fs.DurationVar(&a.refuseTTL, "authorization-webhook-cache-unauthorized-ttl", access.DefaultDenyTTL, "cache TTL for denied decisions")
}

func (a *accessFlags) validate() error {
	if a.mode != modeWebhook {
		return fmt.Errorf("--authorization-mode %q: want %s; AlwaysAllow is not supported", a.mode, modeWebhook)
	}
	if a.tokenTTL < 0 || a.allowTTL < 0 || a.refuseTTL < 0 {
		return errors.New("--authentication-token-webhook-cache-ttl and --authorization-webhook-cache-*-ttl: 0 or more")
	}
	return nil
}

// delegate returns the authenticator and authorizer of the kubelet's server,
// which reviews tokens and accesses through the API. revoked returns the list of
// revoked certificates; while it is unknown, client certificates are rejected. nil: no
// certificate is revoked.
func (a *accessFlags) delegate(c *client.Client, revoked func() (*revocation.List, bool)) *access.Delegate {
	return access.New(access.Config{
		Reviews: access.Reviews{Client: c}, Tokens: a.tokens, Anonymous: a.anonymous,
		TokenTTL: a.tokenTTL, AllowTTL: a.allowTTL, DenyTTL: a.refuseTTL, Revoked: revoked,
	})
}
