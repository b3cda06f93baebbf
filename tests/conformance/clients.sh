#!/bin/sh
# clients.sh DIRECTORY: generates clients from both OpenAPI documents with three common generators, and compiles them. Needs npm
# (after `npm ci` in this folder) and Python with venv. The exit status is 0 if all compile.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
documents=$here/../../share/openapi
mkdir -p "$1"
out=$(cd "$1" && pwd)
"$here/environment.sh" "$out/venv" -r "$here/requirements.txt"
PATH=$out/venv/bin:$PATH # openapi-python-client looks for ruff there
for name in gateway cognitive; do
    echo "clients of $name.json: openapi-typescript, datamodel-code-generator, openapi-python-client"
    document=$documents/$name.json
    (cd "$here" && npx --no-install openapi-typescript "$document" -o "$out/$name.ts" >/dev/null)
    datamodel-codegen --input "$document" --input-file-type openapi --output-model-type pydantic_v2.BaseModel \
        --formatters ruff-format --output "$out/${name}_models.py"
    python -c "import sys; sys.path.insert(0, '$out'); import ${name}_models"
    # This generator only warns of a schema that it cannot read. Two warnings are accepted, for answers that are no JSON: the page of a
    # stream, which can have any media type, and an image of a prompt. Its client has their bytes in `content`, but does not parse them.
    openapi-python-client generate --path "$document" --overwrite --output-path "$out/$name-client" >"$out/$name.log" 2>&1
    if grep -E '^(WARNING|ERROR)|nable to' "$out/$name.log" | grep -Ev 'GET (/streams/\{path\}|/api/chat/sessions/\{id\}/images/)'; then
        echo "clients.sh: openapi-python-client: $out/$name.log" >&2
        exit 1
    fi
    python -m compileall -q "$out/$name-client"
done
# The field `type` distinguishes the events, and each has its own fields.
grep -q 'type: Literal\["text_delta"\]' "$out/gateway_models.py" || grep -q "type: Literal\['text_delta'\]" "$out/gateway_models.py"
cat >"$out/event.ts" <<'TS'
import type { components } from "./gateway"
export function text(event: components["schemas"]["Event"]): string {
  return event.type === "text_delta" ? event.text : event.type === "tool" ? event.toolName : ""
}
TS
cat >"$out/tsconfig.json" <<'JSON'
{
  "compilerOptions": {"strict": true, "noEmit": true, "target": "es2022", "types": []},
  "files": ["gateway.ts", "cognitive.ts", "event.ts"]
}
JSON
(cd "$here" && npx --no-install tsc -p "$out/tsconfig.json")
echo "clients of both documents: six hold: those of openapi-typescript, datamodel-code-generator and openapi-python-client compile"
