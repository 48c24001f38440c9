# Stands in for the installer that ansible-test downloads into its virtual environments: the pip that comes with Python,
# then the wanted release from the package index that pip is configured for.
import runpy
import subprocess
import sys

# Not in this process: ensurepip makes the pip in it ignore the configuration of the machine.
subprocess.check_call([sys.executable, "-m", "ensurepip"], stdout=subprocess.DEVNULL)
wanted = [argument for argument in sys.argv[1:] if argument not in ("--no-setuptools", "--no-wheel")]
sys.argv = ["pip", "install", "--quiet", "--upgrade", *wanted]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
