"""Clients that nobody here wrote (clients/), installed from npm into the build folder at test time.
Skipped, with the reason, where node or npm are missing or the packages cannot be had."""
import hashlib
import os
import shutil
import subprocess
import unittest

from serve_support import Server

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENTS = os.path.join(HERE, "clients")


def install():
    """The folder with the packages; None and a reason when they cannot be installed."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None, "node and npm are not on this machine"
    with open(os.path.join(CLIENTS, "package.json"), "rb") as file:
        package = file.read()
    # A folder a list of packages: another list is another folder.
    name = "serve-clients-" + hashlib.sha256(package).hexdigest()[:12]
    folder = os.path.join(os.environ["CELLM_BUILD_DIR"], name)
    done = os.path.join(folder, "installed")
    if os.path.exists(done):
        return folder, ""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "package.json"), "wb") as file:
        file.write(package)
    run = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock",
                          "--ignore-scripts", "--loglevel=error"], cwd=folder, timeout=600,
                         capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return None, "npm could not install the clients: " + run.stderr.strip()[-300:]
    with open(done, "w", encoding="ascii"):
        pass
    return folder, ""


class Clients(unittest.TestCase):
    def test_clients(self):
        folder, reason = install()
        if folder is None:
            print("SKIPPED: " + reason)
            self.skipTest(reason)
        shutil.copy(os.path.join(CLIENTS, "clients.test.mjs"), folder)
        with Server("--api-key", "key") as server:
            status, _, _ = server.request(
                "POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, "choices": ["a", "b"]},
                {"Authorization": "Bearer key"})
            environment = {**os.environ, "CELLM_BASE_URL": f"http://127.0.0.1:{server.port}/v1",
                           "CELLM_API_KEY": "key", "CELLM_CONSTRAINED": str(int(status == 200)),
                           "LANGSMITH_TRACING": "false"}
            environment.pop("OPENAI_API_KEY", None)
            run = subprocess.run(["node", "--test", "clients.test.mjs"], cwd=folder, text=True,
                                 env=environment, capture_output=True, timeout=300, check=False)
            print("\n".join(line for line in run.stdout.splitlines()
                            if line.startswith(("ok", "not ok", "# pass", "# fail", "# skip",
                                                "ℹ", "✔", "✖"))))
            self.assertEqual(run.returncode, 0, run.stdout[-6000:] + run.stderr[-2000:])


if __name__ == "__main__":
    unittest.main()
