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

// accessFlags say who may use the kubelet's server.
type accessFlags struct {
	anonymous, tokens             bool
	mode                          string
	tokenTTL, allowTTL, refuseTTL time.Duration
}

const modeWebhook = "Webhook"

func (a *accessFlags) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&a.anonymous, "anonymous-auth", false, "let those who show nothing ask for what system:anonymous may do")
	fs.BoolVar(&a.tokens, "authentication-token-webhook", true, "ask the API who a bearer token is (TokenReview)")
	fs.DurationVar(&a.tokenTTL, "authentication-token-webhook-cache-ttl", access.DefaultTokenTTL, "how long a token's user is remembered")
	fs.StringVar(&a.mode, "authorization-mode", modeWebhook, "who says what clients of the server may do: Webhook, which asks the API (SubjectAccessReview)")
	fs.DurationVar(&a.allowTTL, "authorization-webhook-cache-authorized-ttl", access.DefaultAllowTTL, "how long a permission is remembered")
	fs.DurationVar(&a.refuseTTL, "authorization-webhook-cache-unauthorized-ttl", access.DefaultDenyTTL, "how long a refusal is remembered")
}

func (a *accessFlags) validate() error {
	if a.mode != modeWebhook {
		return fmt.Errorf("--authorization-mode %q: want %s; a kubelet that lets everybody do everything is not offered", a.mode, modeWebhook)
	}
	if a.tokenTTL < 0 || a.allowTTL < 0 || a.refuseTTL < 0 {
		return errors.New("--authentication-token-webhook-cache-ttl and --authorization-webhook-cache-*-ttl: 0 or more")
	}
	return nil
}

// delegate knows the server's clients by asking the API.
func (a *accessFlags) delegate(c *client.Client, revoked func() (*revocation.List, bool)) *access.Delegate {
	return access.New(access.Config{
		Reviews: access.Reviews{Client: c}, Tokens: a.tokens, Anonymous: a.anonymous,
		TokenTTL: a.tokenTTL, AllowTTL: a.allowTTL, DenyTTL: a.refuseTTL, Revoked: revoked,
	})
}
