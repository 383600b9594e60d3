{{- define "fencepost.labels" -}}
app.kubernetes.io/name: fencepost
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fencepost.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{/* What would not work, or not as meant, is refused before anything is installed. */}}
{{- define "fencepost.check" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository: name an image with Fencepost and your application (docs/docker.md)" }}
{{- end }}
{{- if not (or .Values.store.url .Values.store.secretName) }}
{{- fail "store: give store.secretName, a Secret with the URL of a store that all pods share, or store.url" }}
{{- end }}
{{- if and .Values.store.url .Values.store.secretName }}
{{- fail "store: give store.url or store.secretName, not both" }}
{{- end }}
{{- if hasPrefix "memory:" .Values.store.url }}
{{- fail "store.url: memory:// is gone with the pod; use Redis, Valkey or PostgreSQL" }}
{{- end }}
{{- if and (gt (int .Values.replicas) 1) (or (hasPrefix "sqlite:" .Values.store.url) (hasPrefix "file:" .Values.store.url)) }}
{{- fail "store.url: SQLite and file stores are for one machine, and each pod would have a file of its own; use Redis, Valkey or PostgreSQL, or replicas: 1" }}
{{- end }}
{{- if not .Values.auth.secretName }}
{{- fail "auth.secretName: name a Secret with a token (key auth.tokenKey): openssl rand -hex 32" }}
{{- end }}
{{- end }}
