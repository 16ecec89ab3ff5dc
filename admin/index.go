package admin

import (
	"html/template"
	"net/http"
)

const indexText = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>outtail</title>
<style>body{font:16px/1.6 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem;color-scheme:light dark}</style>
</head>
<body>
<h1>outtail {{.}}</h1>
<ul>
<li><a href="/readyz">/readyz</a>: 200 when every pipeline streams or waits as a standby, else 503 and the reasons</li>
<li><a href="/healthz">/healthz</a>: 200 while the process lives</li>
<li><a href="/metrics">/metrics</a>: Prometheus metrics</li>
</ul>
</body>
</html>
`

func index(version string) http.Handler {
	page := template.Must(template.New("index").Parse(indexText))
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		_ = page.Execute(w, version) // whoever asked has gone
	})
}
