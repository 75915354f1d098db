package serving

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/cmd/postrider/internal/signin"
	"github.com/postrider/postrider/config"
)

// providerOf returns the OpenID provider of the configuration, nil without one.
func providerOf(a config.Admin) (web.Provider, error) {
	o := a.OIDC
	if o.Issuer == "" {
		return nil, nil
	}
	if o.Viewer != "" && o.Viewer != "everyone" {
		return nil, fmt.Errorf("admin.oidc.viewer is %q; give everyone, or nothing", o.Viewer)
	}
	if a.URL == "" {
		return nil, errors.New("sign-in with OpenID: give admin.url, the address of the administration as browsers see it")
	}
	c := signin.Config{
		Issuer: o.Issuer, ClientID: o.ClientID, Name: o.Name, Scopes: o.Scopes, Redirect: strings.TrimRight(a.URL, "/") + "/signin/callback",
		Access: signin.Access{
			Claim: o.RolesClaim, Roles: make(map[string]admin.Role), SagaRoles: o.SagaRoles, Everyone: o.Viewer == "everyone", Allow: o.Allow,
		},
	}
	for value, role := range o.Roles {
		c.Access.Roles[value] = admin.Role(role)
	}
	if o.SecretFile != "" {
		text, err := os.ReadFile(o.SecretFile)
		if err != nil {
			return nil, fmt.Errorf("read the secret of the OpenID client: %w", err)
		}
		c.Secret = strings.TrimSpace(string(text))
	}
	return signin.New(c)
}
