package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"podium/pkg/storage/encryption"
)

// encryptionOptions are the flags of encryption at rest.
type encryptionOptions struct {
	file   string
	reload bool
}

func (o *encryptionOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.file, "encryption-provider-config", "", "file with the EncryptionConfiguration (apiserver.config.k8s.io/v1) that says which resources are stored encrypted, and how; empty: none")
	f.BoolVar(&o.reload, "encryption-provider-config-automatic-reload", false, "take up changes of --encryption-provider-config without a restart")
}

func (o *encryptionOptions) parse() error {
	if o.reload && o.file == "" {
		return errors.New("--encryption-provider-config-automatic-reload must be set with --encryption-provider-config")
	}
	return nil
}

func (o *encryptionOptions) build(ctx context.Context, r prometheus.Registerer, identity string, log *slog.Logger) (*encryption.Keyring, error) {
	keys, err := encryption.Open(ctx, encryption.Config{File: o.file, Reload: o.reload, Log: log, Registry: r, Identity: identity})
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config: %w", err)
	}
	return keys, nil
}
